#pragma once
// A memory file in this process's address space, through Boost.Interprocess's mapped_region.

#include <trireme/core/bytes.hpp>
#include <trireme/core/error.hpp>
#include <trireme/sys/memfd.hpp>

#include <cstddef>

#include <sys/mman.h>
#include <boost/interprocess/mapped_region.hpp>

namespace trireme {

namespace detail {

/// What mapped_region asks of a mappable object: the descriptor and the mode.
class mappable_memfd {
  public:
    explicit mappable_memfd(fd_ref d) noexcept : fd_(d) {}
    boost::interprocess::mapping_handle_t get_mapping_handle() const noexcept {
        boost::interprocess::mapping_handle_t h{};
        h.handle = fd_.get();
        h.is_xsi = false;
        return h;
    }
    boost::interprocess::mode_t get_mode() const noexcept { return boost::interprocess::read_write; }

  private:
    fd_ref fd_;
};

}  // namespace detail

/// A shared, writable view of a whole memory file. Owns the mapping, not the descriptor; move-only.
/// Throws  system_error when the address space or the number of mappings is exhausted
class mapping {
  public:
    mapping() noexcept = default;
    explicit mapping(const memfd& file) {
        try {
            region_ = boost::interprocess::mapped_region(detail::mappable_memfd(file.descriptor()),
                                                         boost::interprocess::read_write, 0, file.bytes());
        } catch (const boost::interprocess::interprocess_exception& e) {
            throw system_error({"cannot map " + format_bytes(file.bytes()) + " of shared memory",
                                "pid " + std::to_string(::getpid()), "fewer or smaller slots"},
                               e.get_native_error());
        }
    }
    mapping(mapping&& other) noexcept { region_.swap(other.region_); }
    mapping& operator=(mapping&& other) noexcept {
        region_.swap(other.region_);
        return *this;
    }

    std::byte* data() const noexcept { return static_cast<std::byte*>(region_.get_address()); }
    std::size_t size() const noexcept { return region_.get_size(); }

    /// Whether children that are forked from now on get this mapping: not, unless it is meant for them.
    void inherit(bool yes) const noexcept { ::madvise(data(), size(), yes ? MADV_DOFORK : MADV_DONTFORK); }

  private:
    boost::interprocess::mapped_region region_;
};

/// Makes pages present in this process, so that no later access pays for a fault. Content is kept.
///
/// MADV_POPULATE_WRITE reports what MAP_POPULATE hides; the touch afterwards is not redundant: on virtual machines
/// the first access still costs microseconds. Each process warms its own mapping (fork does not copy these
/// entries). Blocks  about 1 to 10 us a page
inline void warm(std::byte* from, std::size_t bytes) noexcept {
    if (bytes == 0) return;
    constexpr int populate_write =
        23;  // MADV_POPULATE_WRITE, Linux 5.14; older kernels answer EINVAL: the touch remains
    auto* const first = from - reinterpret_cast<std::uintptr_t>(from) % page_bytes;
    static_cast<void>(::madvise(first, static_cast<std::size_t>(from + bytes - first), populate_write));
    for (auto* p = first; p < from + bytes; p += page_bytes) static_cast<void>(*const_cast<volatile std::byte*>(p));
}

}  // namespace trireme
