// Fashion-MNIST as a dataset: the four gzip files that Debian's package dataset-fashion-mnist installs, or made-up
// images of the same shape for machines without them.
#pragma once

#include <trireme/core/philox.hpp>
#include <trireme/data/dataset.hpp>
#include <trireme/data/idx_images.hpp>
#include <trireme/zlib/gzip.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace example {

namespace tr = trireme;

/// 28x28 grey pixels and a label from 0 to 9. Copies share the images; forked workers share their pages.
class fashion {
  public:
    using images = tr::idx_images<28, 28>;
    using schema = images::schema;

    /// Reads `part` ("train" or "t10k") from a folder. Throws what the readers throw, naming the file.
    fashion(const std::string& folder, const std::string& part)
        : files_(std::make_shared<images>(folder + "/" + part + "-images-idx3-ubyte.gz",
                                          folder + "/" + part + "-labels-idx1-ubyte.gz", tr::zlib::gzip{})),
          samples_(files_->size()) {}

    /// `samples` made-up images: each class has a pattern of its own, each image noise of its own.
    static fashion synthetic(std::uint64_t samples) { return fashion(samples); }

    static bool is_in(const std::string& folder) {
        return std::filesystem::exists(folder + "/train-images-idx3-ubyte.gz");
    }

    std::uint64_t size() const { return samples_; }
    void read(std::uint64_t index, tr::row<schema> out, tr::sample_context& context) const {
        if (files_) return files_->read(index, out, context);
        const auto label = static_cast<std::int64_t>(index % 10);
        tr::philox noise(1, index);
        tr::philox pattern(2, static_cast<std::uint64_t>(label));
        for (auto& pixel : out.get<"image">())
            pixel = static_cast<std::uint8_t>((pattern() % 128) * 3 / 4 + noise() % 160);
        out.get<"label">() = label;
    }
    std::uint64_t fingerprint() const { return files_ ? files_->fingerprint() : samples_; }

  private:
    explicit fashion(std::uint64_t samples) : samples_(samples) {}

    std::shared_ptr<const images> files_;
    std::uint64_t samples_;
};

}  // namespace example
