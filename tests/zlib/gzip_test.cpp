// Unpacking gzip files: right bytes or an error that names file and offset.
#include <trireme/core/philox.hpp>
#include <trireme/data/idx_images.hpp>
#include <trireme/zlib/gzip.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

using bytes = std::vector<std::byte>;
using trireme::zlib::inflate_gzip;

constexpr std::uint64_t no_limit = (std::numeric_limits<std::uint64_t>::max)();

bytes pack(const bytes& plain) {
    ::z_stream z{};
    REQUIRE(::deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    bytes out(::deflateBound(&z, plain.size()) + 32);
    z.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(plain.data()));
    z.avail_in = static_cast<uInt>(plain.size());
    z.next_out = reinterpret_cast<Bytef*>(out.data());
    z.avail_out = static_cast<uInt>(out.size());
    REQUIRE(::deflate(&z, Z_FINISH) == Z_STREAM_END);
    out.resize(z.total_out);
    ::deflateEnd(&z);
    return out;
}
bytes noise(std::size_t n, std::uint64_t seed) {
    trireme::philox random(seed, 0);
    bytes out(n);
    for (std::byte& b : out) b = static_cast<std::byte>(random.below(256));
    return out;
}
bytes join(bytes a, const bytes& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
std::string refusal(const bytes& packed, std::uint64_t limit = no_limit) {
    try {
        static_cast<void>(inflate_gzip(packed, "some.gz", limit));
    } catch (const trireme::usage_error& e) { return e.what(); }
    return "";
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const std::string fashion = "/usr/share/datasets/fashion-mnist/";

bool fashion_is_here() {
    const bool here = ::access((fashion + "train-images-idx3-ubyte.gz").c_str(), R_OK) == 0;
    if (!here) MESSAGE("left out: " << fashion << " is not there (apt install dataset-fashion-mnist)");
    return here;
}
trireme::idx_images<28, 28> fashion_set(const std::string& part) {
    return {fashion + part + "-images-idx3-ubyte.gz", fashion + part + "-labels-idx1-ubyte.gz",
            trireme::zlib::gzip{}};
}

}  // namespace

TEST_SUITE("zlib/gzip") {
TEST_CASE("what was packed comes back, whatever its size") {
    for (const std::size_t n : {0UL, 1UL, 4095UL, 4096UL, 4097UL, 300'000UL}) {
        CAPTURE(n);
        CHECK(inflate_gzip(pack(noise(n, n)), "some.gz", no_limit) == noise(n, n));
        CHECK(inflate_gzip(pack(bytes(n)), "some.gz", no_limit) == bytes(n));  // packs 1000 to 1
    }
}
TEST_CASE("several members follow each other, with zeros behind the last") {
    const bytes a = noise(10'000, 1), b = noise(20'000, 2), packed = join(pack(a), pack(b));

    CHECK(inflate_gzip(packed, "some.gz", no_limit) == join(a, b));
    CHECK(inflate_gzip(join(packed, bytes(512)), "some.gz", no_limit) == join(a, b));
    CHECK(inflate_gzip(join(pack({}), pack(b)), "some.gz", no_limit) == b);
}
TEST_CASE("a file cut short anywhere is refused with its name and where it ends") {
    const bytes packed = join(pack(noise(300, 1)), pack(noise(300, 2)));
    const std::size_t first = pack(noise(300, 1)).size();

    for (std::size_t n = 0; n < packed.size(); ++n) {
        const bytes cut(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(n));
        CAPTURE(n);
        if (n == first) {
            REQUIRE(refusal(cut).empty());  // one whole member: nobody can tell
        } else if (n == first + 1) {
            REQUIRE(has(refusal(cut), "some.gz: offset " + std::to_string(first) + ": expected a gzip member"));
        } else {
            REQUIRE(has(refusal(cut), "some.gz ends at offset " + std::to_string(n)));
        }
    }
}
TEST_CASE("damage anywhere is found, or it was in bits that mean nothing") {
    bytes plain = noise(2'000, 3);
    for (std::byte& b : plain) b &= std::byte{0x0f};  // packs to about half
    const bytes packed = pack(plain);
    REQUIRE(packed.size() < 1'500);
    std::size_t found = 0;

    for (std::size_t i = 10; i < packed.size(); ++i) {
        bytes damaged = packed;
        damaged[i] ^= std::byte{0x10};
        CAPTURE(i);
        const std::string text = refusal(damaged);
        if (text.empty())
            REQUIRE(inflate_gzip(damaged, "some.gz", no_limit) == plain);
        else
            ++found;
        REQUIRE((text.empty() || has(text, "some.gz")));
    }

    CHECK(found > packed.size() - 20);
    bytes checksum = packed;
    checksum[packed.size() - 5] ^= std::byte{1};
    CHECK(has(refusal(checksum), "near offset"));
    CHECK(has(refusal(checksum), "incorrect data check"));
}
TEST_CASE("what is not gzip is refused, and so is something else behind a member") {
    CHECK(has(refusal(noise(100, 4)), "offset 0: expected a gzip member (1f 8b)"));
    const bytes packed = pack(noise(100, 4));
    const std::string text = refusal(join(packed, noise(10, 5)));
    CHECK(has(text, "offset " + std::to_string(packed.size()) + ": expected a gzip member"));
}
TEST_CASE("data that unpacks to more than the limit is refused, to the byte") {
    const bytes packed = pack(bytes(1'000'000));

    CHECK(refusal(packed, 1'000'000).empty());
    CHECK(has(refusal(packed, 999'999), "more than the limit of 999999 bytes"));
    CHECK(has(refusal(packed, 0), "more than the limit of 0 bytes"));
    CHECK(refusal(pack({}), 0).empty());
    CHECK(refusal(join(pack(bytes(4096)), pack({})), 4096).empty());  // full when the next member begins
    // A size in the trailer that promises too little or too much changes nothing but the first allocation.
    bytes lying = packed;
    for (std::size_t i = 1; i <= 4; ++i) lying[lying.size() - i] = std::byte{0xff};
    CHECK(has(refusal(lying, 999'000), "more than the limit"));
    CHECK(has(refusal(lying), "incorrect length check"));
}
TEST_CASE("a file that is not there is an error with its path") {
    try {
        static_cast<void>(trireme::zlib::gzip{}.load("/nowhere/a.gz"));
        FAIL("opened");
    } catch (const trireme::system_error& e) { CHECK(has(e.what(), "/nowhere/a.gz")); }
}
TEST_CASE("Fashion-MNIST: 60000 and 10000 images, every class equally often") {
    if (!fashion_is_here()) return;
    for (const bool train : {true, false}) {
        const auto set = fashion_set(train ? "train" : "t10k");

        std::array<int, 10> counts{};
        std::uint64_t weighted = 0;
        for (std::uint64_t i = 0; i < set.size(); ++i) {
            ++counts.at(static_cast<std::size_t>(set.label(i)));
            weighted += static_cast<std::uint64_t>(set.label(i)) * (i + 1);
        }

        CHECK(set.size() == (train ? 60'000 : 10'000));
        for (const int c : counts) CHECK(c == (train ? 6'000 : 1'000));
        CHECK(set.label(0) == 9);
        CHECK(weighted == (train ? 8'087'486'427ULL : 225'777'341ULL));
    }
}
TEST_CASE("Fashion-MNIST: the pixels of the first images are where they should be") {
    if (!fashion_is_here()) return;
    const auto set = fashion_set("t10k");
    using schema = decltype(set)::schema;
    alignas(64) std::byte slot[schema::bytes(2)] = {};
    trireme::sample_context context({});

    set.read(0, {slot, 2, 0}, context);
    set.read(9'999, {slot, 2, 1}, context);

    const auto [image, label] = trireme::batch_fields<schema>(slot, 2).fields();
    const auto sum = [](auto row) { return std::accumulate(row.begin(), row.end(), 0); };
    CHECK(label(0) == 9);
    CHECK(label(1) == 5);
    CHECK(sum(image.row_span(0)) == 33'456);
    CHECK(sum(image.row_span(1)) == 24'390);
    CHECK(fashion_set("t10k").fingerprint() == set.fingerprint());
    CHECK(fashion_set("train").fingerprint() != set.fingerprint());
}
}  // TEST_SUITE("zlib/gzip")
