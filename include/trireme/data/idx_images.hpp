#pragma once
// A ready dataset: images and labels from two IDX files, as MNIST, Fashion-MNIST, KMNIST and EMNIST come.

#include <trireme/core/error.hpp>
#include <trireme/core/hash.hpp>
#include <trireme/data/byte_source.hpp>
#include <trireme/data/dataset.hpp>
#include <trireme/data/idx.hpp>
#include <trireme/data/schema.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace trireme {

/// Grey images of `Rows` x `Cols` bytes with a label each: `idx_images<28, 28>{"images-idx3-ubyte",
/// "labels-idx1-ubyte"}`. Keeps the files' bytes in memory; copies share them.
///
/// Threads    `read` may run in several threads at once
template <std::size_t Rows, std::size_t Cols>
class idx_images {
  public:
    using schema = trireme::schema<field<"image", std::uint8_t, Rows, Cols>, field<"label", std::int64_t>>;

    /// Throws     usage_error naming files and numbers: a file is not what it should be, or the counts differ
    idx_images(idx_file images, idx_file labels) : images_(std::move(images)), labels_(std::move(labels)) {
        if (images_.type() != idx_type::uint8 || images_.extents().size() != 3 || images_.extents()[1] != Rows ||
            images_.extents()[2] != Cols)
            throw usage_error(detail::say::idx_wrong_kind(
                images_.name(), static_cast<unsigned>(images_.type()),
                "images n x " + std::to_string(Rows) + " x " + std::to_string(Cols) + " of type 0x08",
                images_.shape()));
        if (labels_.type() != idx_type::uint8 || labels_.extents().size() != 1)
            throw usage_error(detail::say::idx_wrong_kind(labels_.name(), static_cast<unsigned>(labels_.type()),
                                                          "labels n of type 0x08", labels_.shape()));
        if (images_.size() != labels_.size())
            throw usage_error(
                detail::say::idx_counts_differ(images_.name(), images_.size(), labels_.name(), labels_.size()));
    }
    /// Reads both files; `source` is plain_file, or zlib::gzip from the wing.
    ///
    /// Blocks     as long as the disk takes
    /// Throws     system_error, usage_error; both name the file
    template <byte_source Source = plain_file>
    idx_images(const std::string& images, const std::string& labels, const Source& source = {})
        : idx_images(idx_file::open(images, source), idx_file::open(labels, source)) {}

    std::uint64_t size() const noexcept { return images_.size(); }
    std::int64_t label(std::uint64_t index) const { return labels_.at<std::uint8_t>(index); }

    void read(std::uint64_t index, row<schema> r, sample_context&) const {
        const auto pixels = images_.item(index);
        std::memcpy(r.template get<"image">().data(), pixels.data(), pixels.size());
        r.template get<"label">() = label(index);
    }

    /// Count and all labels, and a part of the images: cheap, and different for train and test.
    std::uint64_t fingerprint() const {
        hasher h;
        h.add(size()).add(as_text(labels_.payload()));
        for (std::uint64_t i = 0; i < size(); i += 1 + size() / 64) h.add(as_text(images_.item(i)));
        return h.value();
    }

  private:
    static std::string_view as_text(std::span<const std::byte> bytes) noexcept {
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    idx_file images_;
    idx_file labels_;
};
static_assert(map_dataset<idx_images<28, 28>>);

}  // namespace trireme
