#pragma once
// IDX files, the format of the MNIST family: a magic number, an element type, extents, then the elements, all in
// big-endian order. Nothing in a file is believed before it was compared with the number of bytes there are.

#include <trireme/core/error.hpp>
#include <trireme/data/byte_source.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme {

/// Element types of IDX files, with the numbers that stand in the file.
enum class idx_type : std::uint8_t {
    uint8 = 0x08,
    int8 = 0x09,
    int16 = 0x0B,
    int32 = 0x0C,
    float32 = 0x0D,
    float64 = 0x0E,
};

/// Bytes of one element; 0 for a number that names no type.
constexpr std::size_t element_bytes(idx_type t) noexcept {
    switch (t) {
        case idx_type::uint8:
        case idx_type::int8:
            return 1;
        case idx_type::int16:
            return 2;
        case idx_type::int32:
        case idx_type::float32:
            return 4;
        case idx_type::float64:
            return 8;
    }
    return 0;
}

namespace detail {

template <class T>
inline constexpr idx_type idx_type_of = static_cast<idx_type>(0);
template <>
inline constexpr idx_type idx_type_of<std::uint8_t> = idx_type::uint8;
template <>
inline constexpr idx_type idx_type_of<std::int8_t> = idx_type::int8;
template <>
inline constexpr idx_type idx_type_of<std::int16_t> = idx_type::int16;
template <>
inline constexpr idx_type idx_type_of<std::int32_t> = idx_type::int32;
template <>
inline constexpr idx_type idx_type_of<float> = idx_type::float32;
template <>
inline constexpr idx_type idx_type_of<double> = idx_type::float64;

}  // namespace detail

namespace detail::say {

inline std::string hex(std::uint32_t value, int digits) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%0*x", digits, value);
    return text;
}
inline message idx_ends_early(const std::string& name, std::uint64_t needed, std::uint64_t given) {
    return {name + " ends at offset " + std::to_string(given) + " inside the IDX header, expected at least " +
                std::to_string(needed) + " bytes, found " + std::to_string(given),
            "idx_file", "the file is cut short or no IDX file: fetch it again"};
}
inline message idx_bad_magic(const std::string& name, std::uint32_t found) {
    const bool gzip = found >> 16 == 0x1f8b;
    return {
        name + " is no IDX file: offset 0: expected magic 0x0000TTDD (type, extents), found " + hex(found, 8) +
            (gzip ? " (gzip)" : ""),
        "idx_file",
        gzip ? "read it through trireme::zlib::gzip, <trireme/zlib/gzip.hpp>" : "check that it is the right file"};
}
inline message idx_bad_type(const std::string& name, unsigned found) {
    return {
        name + ": offset 2: expected an element type 0x08, 0x09, 0x0b, 0x0c, 0x0d or 0x0e, found " + hex(found, 2),
        "idx_file", "the file is damaged or no IDX file"};
}
inline message idx_no_extents(const std::string& name) {
    return {name + ": offset 3: expected at least one extent, found 0", "idx_file",
            "the file is damaged or no IDX file"};
}
inline message idx_wrong_size(const std::string& name, std::uint64_t header, const std::string& needed,
                              std::uint64_t found) {
    return {name + ": offset " + std::to_string(header) + ": the header promises " + needed +
                " bytes of elements, found " + std::to_string(found),
            "idx_file", "the file is cut short, damaged or has something behind its end: fetch it again"};
}
inline message idx_wrong_kind(const std::string& name, unsigned type, const std::string& needed,
                              const std::string& found) {
    return {name + ": expected " + needed + ", found " + found + " of type " + hex(type, 2), "idx_file",
            "give the right file; images and labels may be swapped"};
}
inline message idx_counts_differ(const std::string& images, std::uint64_t image_count, const std::string& labels,
                                 std::uint64_t label_count) {
    return {images + " has " + std::to_string(image_count) + " images, but " + labels + " has " +
                std::to_string(label_count) + " labels",
            "idx_images", "both files must belong to the same set (train or t10k)"};
}

}  // namespace detail::say

/// The content of one IDX file, checked. Cheap to copy: copies share the bytes, which never change.
///
/// Threads    may be read from several threads at once
class idx_file {
  public:
    /// Reads and checks a file. `source` decides how: plain_file, or zlib::gzip from the wing.
    ///
    /// Blocks     as long as the disk takes
    /// Throws     system_error, usage_error; both name the file, the latter also offset, expected and found
    template <byte_source Source = plain_file>
    static idx_file open(const std::string& path, const Source& source = {}) {
        return idx_file(source.load(path), path);
    }

    /// Takes bytes that are already in memory; `name` stands in messages.
    explicit idx_file(std::vector<std::byte> bytes, std::string name = "idx bytes") : name_(std::move(name)) {
        auto owned = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
        bytes_ = {owned->data(), owned->size()};
        owner_ = std::move(owned);
        parse();
    }
    /// Looks at bytes that the caller keeps alive and unchanged.
    explicit idx_file(std::span<const std::byte> bytes, std::string name = "idx bytes")
        : name_(std::move(name)), bytes_(bytes) {
        parse();
    }

    const std::string& name() const noexcept { return name_; }
    idx_type type() const noexcept { return type_; }
    /// Extents, the number of items first; at least one.
    const std::vector<std::uint64_t>& extents() const noexcept { return extents_; }
    /// Number of items: the first extent.
    std::uint64_t size() const noexcept { return extents_[0]; }
    /// Elements of one item.
    std::uint64_t item_elements() const noexcept { return item_elements_; }
    /// "60000 x 28 x 28"
    std::string shape() const {
        std::string text;
        for (const std::uint64_t extent : extents_) text += (text.empty() ? "" : " x ") + std::to_string(extent);
        return text;
    }

    /// The elements as they lie in the file, big-endian.
    std::span<const std::byte> payload() const noexcept { return bytes_.subspan(header_bytes()); }
    /// The bytes of item i.
    std::span<const std::byte> item(std::uint64_t i) const {
        const std::uint64_t bytes = item_elements_ * element_bytes(type_);
        if (i >= size()) throw usage_error(out_of_range(i, size(), "item"));
        return payload().subspan(i * bytes, bytes);
    }

    /// Element number i, in the machine's own byte order.
    ///
    /// Throws     usage_error when T is not what the file holds, or i lies behind its end
    template <class T>
    T at(std::uint64_t i) const {
        static_assert(detail::idx_type_of<T> != static_cast<idx_type>(0),
                      "trireme: IDX files hold uint8, int8, int16, int32, float or double");
        if (detail::idx_type_of<T> != type_)
            throw usage_error(detail::say::idx_wrong_kind(
                name_, static_cast<unsigned>(type_),
                "elements of type " + detail::say::hex(static_cast<unsigned>(detail::idx_type_of<T>), 2), shape()));
        const std::uint64_t elements = size() * item_elements_;
        if (i >= elements) throw usage_error(out_of_range(i, elements, "element"));
        using bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
        bits value = 0;
        for (std::size_t b = 0; b < sizeof(T); ++b)
            value = static_cast<bits>(value << 8 | std::to_integer<bits>(payload()[i * sizeof(T) + b]));
        if constexpr (std::is_floating_point_v<T>) {
            return std::bit_cast<T>(value);
        } else {
            return static_cast<T>(value);
        }
    }

  private:
    std::size_t header_bytes() const noexcept { return 4 + 4 * extents_.size(); }
    std::uint32_t big_endian(std::size_t at) const noexcept {
        std::uint32_t value = 0;
        for (std::size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::uint32_t>(bytes_[at + i]);
        return value;
    }
    message out_of_range(std::uint64_t i, std::uint64_t limit, const char* what) const {
        return {name_ + " has " + std::to_string(limit) + " " + what + "s, asked for number " + std::to_string(i),
                "idx_file", "count from 0"};
    }

    void parse() {
        if (bytes_.size() < 4) throw usage_error(detail::say::idx_ends_early(name_, 4, bytes_.size()));
        const std::uint32_t magic = big_endian(0);
        if (magic >> 16 != 0) throw usage_error(detail::say::idx_bad_magic(name_, magic));
        type_ = static_cast<idx_type>(magic >> 8 & 0xff);
        const std::size_t rank = magic & 0xff;
        if (element_bytes(type_) == 0) throw usage_error(detail::say::idx_bad_type(name_, magic >> 8 & 0xff));
        if (rank == 0) throw usage_error(detail::say::idx_no_extents(name_));
        const std::size_t header = 4 + 4 * rank;
        if (bytes_.size() < header) throw usage_error(detail::say::idx_ends_early(name_, header, bytes_.size()));

        const std::uint64_t found = bytes_.size() - header;
        std::uint64_t items = 1, needed = element_bytes(type_);
        bool overflow = false;
        for (std::size_t i = 0; i < rank; ++i) {
            extents_.push_back(big_endian(4 + 4 * i));
            if (i > 0) overflow |= __builtin_mul_overflow(items, extents_[i], &items);
            overflow |= __builtin_mul_overflow(needed, extents_[i], &needed);
        }
        if (overflow || needed != found)
            throw usage_error(detail::say::idx_wrong_size(
                name_, header, overflow ? "more than 2^64" : std::to_string(needed), found));
        item_elements_ = items;
    }

    std::string name_;
    std::shared_ptr<const std::vector<std::byte>> owner_;
    std::span<const std::byte> bytes_;
    std::vector<std::uint64_t> extents_;
    std::uint64_t item_elements_ = 0;
    idx_type type_ = idx_type::uint8;
};

}  // namespace trireme
