// Which types are datasets.
#include <trireme/data/dataset.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

namespace {

struct squares {
    using schema = trireme::schema<trireme::field<"x", double>, trireme::field<"y", double>>;
    int size() const { return 100; }
    void read(std::uint64_t index, trireme::row<schema> r, const trireme::sample_context&) const {
        r.get<"x">() = static_cast<double>(index);
        r.get<"y">() = static_cast<double>(index * index);
    }
};
struct not_const : squares {
    void read(std::uint64_t, trireme::row<schema>, trireme::sample_context&) {}
};
struct without_size {
    using schema = squares::schema;
    void read(std::uint64_t, trireme::row<schema>, trireme::sample_context&) const {}
};
struct marked : squares {
    std::uint64_t fingerprint() const { return 4711; }
};

static_assert(trireme::map_dataset<squares>);
static_assert(trireme::map_dataset<marked>);
static_assert(trireme::map_dataset<trireme::counting_dataset>);
static_assert(!trireme::map_dataset<not_const>);
static_assert(!trireme::map_dataset<without_size>);
static_assert(!trireme::map_dataset<int>);
static_assert(trireme::explain::map_dataset<squares>());

}  // namespace

TEST_SUITE("data/dataset") {
TEST_CASE("the smallest dataset counts") {
    alignas(64) std::byte slot[trireme::counting_dataset::schema::bytes(2)] = {};
    const trireme::counting_dataset data{.samples = 10};
    trireme::sample_context context({.seed = 0, .epoch = 0, .index = 7});

    data.read(7, {slot, 2, 1}, context);

    CHECK(data.size() == 10);
    CHECK(trireme::batch_fields<trireme::counting_dataset::schema>(slot, 2).get<"value">()[1] == 7);
}
TEST_CASE("datasets of different sizes have different fingerprints, and a dataset's own one counts") {
    using trireme::counting_dataset;

    CHECK(trireme::dataset_fingerprint(counting_dataset{10}) == trireme::dataset_fingerprint(counting_dataset{10}));
    CHECK(trireme::dataset_fingerprint(counting_dataset{10}) != trireme::dataset_fingerprint(counting_dataset{11}));
    CHECK(trireme::dataset_fingerprint(squares{}) != trireme::dataset_fingerprint(counting_dataset{100}));
    CHECK(trireme::dataset_fingerprint(marked{}) == 4711);
}
}  // TEST_SUITE("data/dataset")
