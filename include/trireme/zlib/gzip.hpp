#pragma once
// The zlib wing: a byte source for gzip files. Link with -lz (target trireme::zlib).

#include <trireme/core/bytes.hpp>
#include <trireme/core/error.hpp>
#include <trireme/data/byte_source.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <zlib.h>

namespace trireme::zlib {

namespace detail::say {

inline message not_gzip(const std::string& name, std::uint64_t offset) {
    return {name + ": offset " + std::to_string(offset) + ": expected a gzip member (1f 8b), found something else",
            "zlib::gzip",
            offset == 0 ? "the file is not compressed: read it through trireme::plain_file"
                        : "something follows the compressed data: fetch the file again"};
}
inline message cut_short(const std::string& name, std::uint64_t offset) {
    return {name + " ends at offset " + std::to_string(offset) + " inside the compressed data", "zlib::gzip",
            "the file is cut short: fetch it again"};
}
inline message damaged(const std::string& name, std::uint64_t offset, const char* reason) {
    return {name + " is damaged near offset " + std::to_string(offset) + ": " +
                (reason != nullptr ? reason : "invalid compressed data"),
            "zlib::gzip", "fetch the file again"};
}
inline message too_large(const std::string& name, std::uint64_t offset, std::uint64_t limit) {
    return {name + ": offset " + std::to_string(offset) + ": unpacks to more than the limit of " +
                std::to_string(limit) + " bytes",
            "zlib::gzip", "check the file, or raise zlib::gzip::max_bytes"};
}
inline message no_memory(const std::string& name) {
    return {"zlib found no memory to unpack " + name, "zlib::gzip", "free some memory"};
}

}  // namespace detail::say

/// Unpacks gzip data of one or more members.
///
/// Throws     usage_error naming `name`, the offset in the compressed data and what is wrong: not gzip, cut short,
///            damaged (a checksum that does not fit included), or larger than `max_bytes`
/// Threads    any
inline std::vector<std::byte> inflate_gzip(std::span<const std::byte> packed, const std::string& name,
                                           std::uint64_t max_bytes) {
    // The last four bytes state the size of the last member, but anybody can write them: a hint, believed no
    // further than deflate can reach (1032 to 1).
    std::uint64_t hint = 0;
    if (packed.size() >= 4)
        for (std::size_t i = 1; i <= 4; ++i)
            hint = hint << 8 | std::to_integer<std::uint64_t>(packed[packed.size() - i]);
    hint = (std::min)({hint, std::uint64_t{packed.size()} * 1032, max_bytes});
    std::vector<std::byte> out((std::max)(std::size_t{hint}, std::size_t{4096}));

    struct stream {
        ::z_stream z{};
        ~stream() { ::inflateEnd(&z); }
    } s;
    if (::inflateInit2(&s.z, 16 + MAX_WBITS) != Z_OK) throw usage_error(detail::say::no_memory(name));

    constexpr std::size_t slice = std::size_t{1} << 30;  // zlib counts in 32 bits
    std::size_t in = 0, made = 0;
    const auto is_member = [&](std::size_t at) {
        return packed.size() - at >= 2 && packed[at] == std::byte{0x1f} && packed[at + 1] == std::byte{0x8b};
    };
    if (packed.size() >= 2 && !is_member(0)) throw usage_error(detail::say::not_gzip(name, 0));
    for (;;) {
        if (made == out.size()) {
            // One byte beyond the limit tells "just fits" from "too large".
            if (made > max_bytes) throw usage_error(detail::say::too_large(name, in, max_bytes));
            const std::uint64_t room = max_bytes - made;
            out.resize(made + 1 + static_cast<std::size_t>((std::min)(std::uint64_t{made}, room)));
        }
        const std::size_t in_now = (std::min)(packed.size() - in, slice),
                          out_now = (std::min)(out.size() - made, slice);
        // zlib's interface predates const; it does not write its input.
        s.z.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data() + in));
        s.z.avail_in = static_cast<uInt>(in_now);
        s.z.next_out = reinterpret_cast<Bytef*>(out.data() + made);
        s.z.avail_out = static_cast<uInt>(out_now);
        const int result = ::inflate(&s.z, Z_NO_FLUSH);
        in += in_now - s.z.avail_in;
        made += out_now - s.z.avail_out;

        if (result == Z_STREAM_END) {
            // Padding with zeros is customary (tapes, block devices); gzip ignores it as well.
            std::size_t next = in;
            while (next < packed.size() && packed[next] == std::byte{0}) ++next;
            if (next == packed.size()) break;
            if (!is_member(next)) throw usage_error(detail::say::not_gzip(name, next));
            in = next;
            ::inflateReset(&s.z);
        } else if (result == Z_MEM_ERROR) {
            throw usage_error(detail::say::no_memory(name));
        } else if (result != Z_OK && result != Z_BUF_ERROR) {
            throw usage_error(detail::say::damaged(name, in, s.z.msg));
        } else if (in == packed.size() && s.z.avail_out != 0) {
            throw usage_error(detail::say::cut_short(name, in));
        }
    }
    if (made > max_bytes) throw usage_error(detail::say::too_large(name, in, max_bytes));
    out.resize(made);
    return out;
}

/// A byte source for gzip files: `idx_file::open(path, zlib::gzip{})`.
struct gzip {
    /// Files that unpack to more are refused.
    std::uint64_t max_bytes = 64_GiB;

    /// Blocks     as long as the disk and the unpacking take
    /// Throws     system_error, usage_error; both name the path
    /// Threads    any
    std::vector<std::byte> load(const std::string& path) const {
        return inflate_gzip(plain_file{.max_bytes = max_bytes}.load(path), path, max_bytes);
    }
};
static_assert(byte_source<gzip>);

}  // namespace trireme::zlib
