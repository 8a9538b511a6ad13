#pragma once
// The plan of a model's gradients: where each parameter lies in the arena, and which gradients are reduced together
// in which order. A pure function of the list of parameters and the limits, so that every rank makes the same one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <unistd.h>

#include <trireme/core/bytes.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/hash.hpp>
#include <trireme/core/version.hpp>
#include <trireme/dist/bucket.hpp>
#include <trireme/dist/reduction.hpp>

namespace trireme {

/// A parameter of the model. A parameter that several layers share is one entry, with `uses` set to how often
/// backward adds to its gradient in a step; it is ready after that many calls of ready().
struct param_spec {
    std::string name;
    std::vector<std::size_t> shape;
    dtype type = dtype::f32;
    std::uint32_t uses = 1;

    std::size_t count() const noexcept {
        return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, [](auto a, auto b) { return a * b; });
    }
    std::size_t bytes() const noexcept { return count() * size_of(type); }
};

/// "'fc1.weight' [512, 784] float"
inline std::string describe(const param_spec& p) {
    std::string text = "'" + p.name + "' [";
    for (std::size_t i = 0; i < p.shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(p.shape[i]);
    return text + "] " + name(p.type) + (p.uses == 1 ? "" : ", used " + std::to_string(p.uses) + " times");
}

namespace detail::say {
inline message parameter_not_real(const param_spec& p) {
    return {"parameter " + describe(p) + " cannot be averaged over ranks", "pid " + std::to_string(::getpid()),
            "parameters are half, bfloat16, float or double; keep others out of the layout"};
}
inline message parameter_twice(const std::string& name) {
    return {"two parameters are called '" + name + "'", "pid " + std::to_string(::getpid()),
            "give each its own name; a tensor that two layers share is one entry with uses = 2"};
}
}  // namespace detail::say

class plan {
  public:
    /// Each parameter starts at a multiple of this many bytes; the gaps stay zero.
    static constexpr std::size_t alignment = cache_line;

    /// `parameters` in the order of forward: gradients are expected in reverse.
    /// Throws  usage_error: a type that has no mean, or a name given twice
    explicit plan(std::vector<param_spec> parameters, buckets limits = {})
        : parameters_(std::move(parameters)), limits_(limits), places_(parameters_.size()) {
        std::map<std::string, int> seen;
        for (const auto& p : parameters_) {
            if (p.type != dtype::f16 && p.type != dtype::bf16 && p.type != dtype::f32 && p.type != dtype::f64)
                throw usage_error(detail::say::parameter_not_real(p));
            if (seen[p.name]++ != 0) throw usage_error(detail::say::parameter_twice(p.name));
        }
        std::vector<std::uint32_t> order(parameters_.size());
        std::iota(order.rbegin(), order.rend(), 0U);
        for (const dtype t : {dtype::f64, dtype::f32, dtype::f16, dtype::bf16}) {  // a type's parameters in a row
            const std::size_t begin = bytes_;
            for (const std::uint32_t i : order) {
                if (parameters_[i].type != t) continue;
                places_[i] = bytes_;
                bytes_ = align_up(bytes_ + parameters_[i].bytes(), alignment);
            }
            if (bytes_ != begin) regions_[static_cast<std::size_t>(t)] = {begin, bytes_};
        }
        cut(order);
    }

    const std::vector<param_spec>& parameters() const noexcept { return parameters_; }
    const std::vector<bucket>& cuts() const noexcept { return buckets_; }
    buckets limits() const noexcept { return limits_; }
    /// Bytes of the arena.
    std::size_t bytes() const noexcept { return bytes_; }
    /// Where parameter `i` starts in the arena, in bytes.
    std::size_t place(std::size_t i) const noexcept { return places_[i]; }
    /// The part of the arena that holds the parameters of one type.
    arena_range region(dtype t) const noexcept { return regions_[static_cast<std::size_t>(t)]; }
    /// Which bucket parameter `i` is in.
    std::size_t bucket_of(std::size_t i) const noexcept { return bucket_of_[i]; }

    /// Cuts anew, for gradients that arrive in `order` (every parameter once). Places stay.
    void cut(const std::vector<std::uint32_t>& order) {
        struct open_bucket {
            bucket content;
            std::size_t bytes = 0;
            std::size_t last = 0;  // position of its latest parameter in `order`
            bool first = true;     // of its type
        };
        std::map<dtype, open_bucket> open;
        std::vector<open_bucket> closed;
        const auto close = [&](open_bucket& b) {
            const bool any = !b.content.parameters.empty();
            if (any) closed.push_back(b);
            b = {{}, 0, 0, b.first && !any};
        };
        for (std::size_t at = 0; at < order.size(); ++at) {
            const param_spec& p = parameters_[order[at]];
            open_bucket& b = open[p.type];
            b.content.type = p.type;
            b.content.parameters.push_back(order[at]);
            b.bytes += p.bytes();
            b.last = at;
            if (b.bytes >= (b.first ? limits_.first : limits_.cap)) close(b);
        }
        for (auto& [type, b] : open) close(b);
        // Reduced in the order in which they are full.
        std::sort(closed.begin(), closed.end(),
                  [](const open_bucket& a, const open_bucket& b) { return a.last < b.last; });
        buckets_.clear();
        bucket_of_.assign(parameters_.size(), 0);
        for (auto& b : closed) {
            for (const std::uint32_t i : b.content.parameters) {
                bucket_of_[i] = buckets_.size();
                if (parameters_[i].count() == 0) continue;
                b.content.ranges.push_back({places_[i], align_up(places_[i] + parameters_[i].bytes(), alignment)});
            }
            merge(b.content.ranges);
            buckets_.push_back(std::move(b.content));
        }
    }

    /// What must be equal on all ranks, one line for each thing: the first line that differs is the error.
    std::vector<std::string> lines() const {
        std::vector<std::string> all;
        all.push_back("library version " + std::to_string(version.major_part) + "." +
                      std::to_string(version.minor_part) + "." + std::to_string(version.patch_part));
        all.push_back("buckets{" + std::to_string(limits_.first) + ", " + std::to_string(limits_.cap) + "}");
        for (std::size_t i = 0; i < parameters_.size(); ++i)
            all.push_back("parameter " + std::to_string(i) + " " + describe(parameters_[i]));
        return all;
    }
    std::uint64_t hash() const {
        hasher h;
        for (const auto& line : lines()) h.add(line);
        return h.value();
    }

  private:
    static void merge(std::vector<arena_range>& r) {
        std::sort(r.begin(), r.end(), [](arena_range a, arena_range b) { return a.begin < b.begin; });
        std::size_t kept = 0;
        for (std::size_t i = 1; i < r.size(); ++i) {
            if (r[kept].end == r[i].begin)
                r[kept].end = r[i].end;
            else
                r[++kept] = r[i];
        }
        if (!r.empty()) r.resize(kept + 1);
    }

    std::vector<param_spec> parameters_;
    buckets limits_;
    std::vector<std::size_t> places_;
    arena_range regions_[16]{};
    std::size_t bytes_ = 0;
    std::vector<bucket> buckets_;
    std::vector<std::size_t> bucket_of_;
};

}  // namespace trireme
