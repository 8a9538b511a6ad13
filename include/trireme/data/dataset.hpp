#pragma once
// Datasets: what a user writes to feed a loader.

#include <trireme/core/hash.hpp>
#include <trireme/data/context.hpp>
#include <trireme/data/row.hpp>
#include <trireme/data/schema.hpp>

#include <concepts>
#include <cstdint>

namespace trireme {

/// A dataset that can make any sample at any time, map style.
///
///   D::schema                    a trireme::schema<field<...>...>
///   d.size()                     number of samples, the same for as long as d lives
///   d.read(index, row, context)  writes every field of sample `index`, 0 <= index < size(); may throw anything
///   d.fingerprint()              optional: a number that differs when the content does; compared between ranks
///
/// The compiler cannot check: `read` is const because several threads call it at the same time; it writes every
/// field (the row holds another sample's bytes before); what it writes depends on index, epoch and context.rng()
/// only, so that a sample redone after a worker's death is the same; it looks at context.stop_requested() when it
/// takes long. Reference model: counting_dataset below.
template <class D>
concept map_dataset = requires {
    typename D::schema;
}
&&sample_schema<typename D::schema>&& requires(const D& d, std::uint64_t index, row<typename D::schema> r,
                                               sample_context& context) {
    { d.size() } -> std::convertible_to<std::uint64_t>;
    d.read(index, r, context);
};

/// The smallest dataset: sample i is the number i. For first steps, tests and dry runs.
struct counting_dataset {
    using schema = trireme::schema<field<"value", std::uint64_t>>;

    std::uint64_t samples = 0;

    std::uint64_t size() const { return samples; }
    void read(std::uint64_t index, row<schema> r, sample_context&) const { r.get<"value">() = index; }
};
static_assert(map_dataset<counting_dataset>);

namespace explain {  // one sentence per requirement; the first that fails is what the user reads

template <class D>
consteval bool map_dataset() {
    static_assert(
        requires { typename D::schema; },
        "trireme: a dataset names its fields: 'using schema = trireme::schema<trireme::field<\"x\", float>>;'. "
        "Copy counting_dataset, trireme/data/dataset.hpp");
    static_assert(sample_schema<typename D::schema>,
                  "trireme: a dataset's 'schema' is a trireme::schema<field<...>...>, trireme/data/schema.hpp");
    static_assert(
        requires(const D& d) {
            { d.size() } -> std::convertible_to<std::uint64_t>;
        },
        "trireme: a dataset says how many samples it has: 'std::uint64_t size() const'");
    static_assert(
        requires(const D& d, std::uint64_t i, row<typename D::schema> r, sample_context& c) { d.read(i, r, c); },
        "trireme: a dataset makes one sample: 'void read(std::uint64_t index, trireme::row<schema>, "
        "trireme::sample_context&) const'; const, because several threads call it");
    static_assert(trireme::map_dataset<D>,
                  "trireme: not a map_dataset; compare with counting_dataset, trireme/data/dataset.hpp");
    return true;
}

}  // namespace explain

/// What ranks compare so that they do not train on different data: the dataset's own fingerprint() if it has one,
/// otherwise its size and layout.
template <map_dataset D>
std::uint64_t dataset_fingerprint(const D& d) {
    if constexpr (requires {
                      { d.fingerprint() } -> std::convertible_to<std::uint64_t>;
                  }) {
        return static_cast<std::uint64_t>(d.fingerprint());
    } else {
        return hasher().add(static_cast<std::uint64_t>(d.size())).add(D::schema::hash()).value();
    }
}

}  // namespace trireme
