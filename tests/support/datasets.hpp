// Datasets that misbehave on request, and how a run of a loader is boiled down to something comparable.
#pragma once

#include <trireme/core/hash.hpp>
#include <trireme/data/dataset.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <unistd.h>

namespace test {

using wide_schema = trireme::schema<trireme::field<"draw", std::uint64_t>, trireme::field<"x", float, 3>>;

/// Sample i: its first draw, and i as three floats. `before(i)` may sleep, throw or kill.
struct scripted {
    using schema = wide_schema;

    std::uint64_t samples = 0;
    std::function<void(std::uint64_t, const trireme::sample_context&)> before = nullptr;

    std::uint64_t size() const { return samples; }
    void read(std::uint64_t index, trireme::row<schema> out, trireme::sample_context& context) const {
        if (before) before(index, context);
        out.get<"draw">() = context.rng()();
        for (auto& v : out.get<"x">()) v = static_cast<float>(index);
    }
};

/// One batch as the sample numbers in it (-1: no sample) .
template <class Batch>
std::vector<long> samples_of(const Batch& batch) {
    std::vector<long> found;
    const auto x = batch.template get<"x">();
    for (std::size_t i = 0; i < batch.rows(); ++i)
        found.push_back(batch.valid(i) ? static_cast<long>(x(i, 0)) : -1);
    return found;
}

/// Every byte that a trainer sees of a batch, and which rows are valid.
template <class Batch>
std::uint64_t bytes_of(const Batch& batch) {
    trireme::hasher h;
    h.add(batch.epoch()).add(batch.step());
    for (const auto v : batch.template get<"draw">().span()) h.add(v);
    for (const auto v : batch.template get<"x">().span()) h.add(static_cast<std::uint64_t>(v));
    for (std::size_t i = 0; i < batch.rows(); ++i) h.add(static_cast<std::uint64_t>(batch.state(i)));
    return h.value();
}

template <class Loader>
std::vector<std::uint64_t> epoch_bytes(Loader& loader, std::uint64_t epoch) {
    std::vector<std::uint64_t> found;
    for (auto&& batch : loader.epoch(epoch)) found.push_back(bytes_of(batch));
    return found;
}

}  // namespace test
