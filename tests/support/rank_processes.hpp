// Runs a body on every rank of a group of processes and gathers what they say in a shared page.
#pragma once

#include <trireme/core/fixed_string.hpp>
#include <trireme/dist/launch.hpp>
#include <trireme/dist/shm_transport.hpp>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "support/processes.hpp"

namespace test {

struct said_by_ranks {
    trireme::fixed_text<1500> text[8];
};

/// body(world&) in `n` processes; the texts of all ranks, an exception's text where it threw; `status` gets what
/// launch returned. A rank whose body threw leaves with 0 all the same.
template <class Body>
std::vector<std::string> on_worlds(std::uint32_t n, Body body, int* status = nullptr) {
    shared_page<said_by_ranks> page;
    const int got = trireme::launch(trireme::ranks{n}, [&](trireme::world& w) {
        auto& mine = page->text[w.rank()];
        try {
            mine.assign(body(w));
        } catch (const std::exception& e) { mine.assign(e.what()); }
    });
    if (status != nullptr) *status = got;
    std::vector<std::string> said(n);
    for (std::uint32_t r = 0; r < n; ++r) said[r] = std::string(page->text[r].view());
    if (got != 0 && status == nullptr) said.push_back("launch returned " + std::to_string(got));
    return said;
}

/// body(shm_transport&) in `n` processes.
template <class Body>
std::vector<std::string> on_processes(std::uint32_t n, Body body, trireme::transport_options options = {}) {
    return on_worlds(n, [&](trireme::world& w) {
        trireme::shm_transport t(w, options);
        std::string said = body(t);
        w.barrier();  // nobody's end is mistaken for a death
        return said;
    });
}

}  // namespace test
