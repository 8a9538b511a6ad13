// Runs a body on every rank of a group of threads and gathers what they say.
#pragma once

#include <trireme/dist/thread_transport.hpp>

#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace test {

/// The rank numbers that tests of transports use.
inline constexpr std::uint32_t group_sizes[] = {1, 2, 3, 4, 7};

/// body(transport&) on `n` threads; the texts of all ranks, an exception's text where it threw.
template <class Body>
std::vector<std::string> on_threads(std::uint32_t n, Body body, trireme::transport_options options = {}) {
    std::vector<std::string> said(n);
    const trireme::thread_group group(trireme::world_size{n});
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < n; ++r) {
        threads.emplace_back([&, r] {
            try {
                trireme::thread_transport t(group, trireme::rank{r}, options);
                said[r] = body(t);
            } catch (const std::exception& e) { said[r] = e.what(); }
        });
    }
    for (auto& t : threads) t.join();
    return said;
}

/// Everybody said nothing.
inline std::vector<std::string> silence(std::uint32_t n) { return std::vector<std::string>(n); }

}  // namespace test
