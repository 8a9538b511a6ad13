// The ready dataset of images and labels.
#include <trireme/data/idx_images.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using trireme::idx_file;
using set = trireme::idx_images<2, 3>;

std::vector<std::byte> file(std::initializer_list<int> header, std::size_t payload, int step) {
    std::vector<std::byte> out;
    for (const int b : header) out.push_back(static_cast<std::byte>(b));
    for (std::size_t i = 0; i < payload; ++i) out.push_back(static_cast<std::byte>(static_cast<int>(i) * step));
    return out;
}
idx_file images(int n, int rows = 2, int columns = 3, int step = 1) {
    return idx_file(file({0, 0, 8, 3, 0, 0, 0, n, 0, 0, 0, rows, 0, 0, 0, columns},
                         static_cast<std::size_t>(n * rows * columns), step),
                    "images.idx");
}
idx_file labels(int n, int step = 1) {
    return idx_file(file({0, 0, 8, 1, 0, 0, 0, n}, static_cast<std::size_t>(n), step), "labels.idx");
}
template <class Make>
std::string refusal(Make make) {
    try {
        make();
    } catch (const trireme::usage_error& e) { return e.what(); }
    return "";
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_SUITE("data/idx_images") {
TEST_CASE("a read puts image and label of one sample into its row") {
    const set data(images(4), labels(4, 2));
    alignas(64) std::byte slot[set::schema::bytes(2)] = {};
    trireme::sample_context context({.seed = 0, .epoch = 0, .index = 3});

    data.read(3, {slot, 2, 1}, context);

    const auto [image, label] = trireme::batch_fields<set::schema>(slot, 2).fields();
    CHECK(data.size() == 4);
    CHECK(label(1) == 6);
    CHECK(image(1, 0, 0) == 18);
    CHECK(image(1, 1, 2) == 23);
    CHECK(image(0, 1, 2) == 0);  // the other row is not touched
    CHECK(data.label(2) == 4);
}
TEST_CASE("files that do not fit each other or the type are refused with names and numbers") {
    CHECK(has(refusal([] { set(images(4), labels(5)); }), "images.idx has 4 images, but labels.idx has 5 labels"));
    CHECK(has(refusal([] { set(images(4, 3, 2), labels(4)); }),
              "expected images n x 2 x 3 of type 0x08, found 4 x 3 x 2"));
    CHECK(has(refusal([] { set(images(4, 2, 4), labels(4)); }), "found 4 x 2 x 4"));
    CHECK(has(refusal([] { set(labels(4), labels(4)); }), "labels.idx: expected images"));
    CHECK(has(refusal([] { set(images(4), images(4)); }), "images.idx: expected labels"));
}
TEST_CASE("the fingerprint follows labels and images") {
    const std::uint64_t same = set(images(4), labels(4)).fingerprint();

    CHECK(set(images(4), labels(4)).fingerprint() == same);
    CHECK(set(images(4), labels(4, 3)).fingerprint() != same);
    CHECK(set(images(4, 2, 3, 5), labels(4)).fingerprint() != same);
    CHECK(set(images(5), labels(5)).fingerprint() != same);
    CHECK(trireme::dataset_fingerprint(set(images(4), labels(4))) == same);
}
TEST_CASE("a sample behind the end is refused, never read") {
    const set data(images(4), labels(4));
    alignas(64) std::byte slot[set::schema::bytes(1)] = {};
    trireme::sample_context context({});

    CHECK_THROWS_AS(data.read(4, {slot, 1, 0}, context), trireme::usage_error);
}
}  // TEST_SUITE("data/idx_images")
