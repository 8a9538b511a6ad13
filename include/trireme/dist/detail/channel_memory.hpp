#pragma once
// A channel's shared memory, by name.

#include <cstddef>
#include <cstdint>

#include <trireme/dist/detail/channel_layout.hpp>

namespace trireme::detail {

/// The memory of a channel, by name.
class channel_memory {
  public:
    channel_memory(std::byte* base, channel_layout layout) : base_(base), layout_(layout) {}

    const channel_layout& layout() const noexcept { return layout_; }
    channel_header& header() const noexcept { return *reinterpret_cast<channel_header*>(base_); }
    rank_counters& counters(std::uint32_t r) const noexcept {
        return reinterpret_cast<rank_counters*>(base_ + layout_.counters)[r];
    }
    rank_bell& bell(std::uint32_t r) const noexcept {
        return reinterpret_cast<rank_bell*>(base_ + layout_.bells)[r];
    }
    op_entry& entry(std::uint32_t r, std::uint64_t n) const noexcept {
        std::byte* const ring = base_ + layout_.rings + r * channel_layout::ring_stride;
        return reinterpret_cast<op_entry*>(ring)[n % channel_layout::entries];
    }
    /// Where the small input of operation n lies: in its entry, or in a slot of its own.
    std::byte* payload(std::uint32_t r, std::uint64_t n, std::size_t bytes) const noexcept {
        if (bytes <= op_entry::inline_bytes) return entry(r, n).bytes;
        return base_ + layout_.payloads + r * channel_layout::payload_stride +
               n % channel_layout::payload_slots * channel_layout::payload_bytes;
    }
    std::byte* stage(std::uint32_t r, std::uint64_t slot) const noexcept {
        return base_ + layout_.stages + (r * std::size_t{4} + slot) * layout_.stage_stride();
    }

  private:
    std::byte* base_;
    channel_layout layout_;
};

}  // namespace trireme::detail
