// The user's own names stand in the global namespace before and after our headers: a `using namespace` that escapes
// would make them ambiguous.
struct span {};
struct barrier {};
struct thread_pool {};
struct ring {};
struct loader {};
struct pool {};
struct rank {};
struct world {};
struct error {};
struct step {};

#include "everything_forward.hpp"

#include <cstdio>

const void* category_seen_by_other();
unsigned version_seen_by_other();

int main() {
    [[maybe_unused]] const span a{};
    [[maybe_unused]] const barrier b{};
    [[maybe_unused]] const thread_pool c{};
    [[maybe_unused]] const ring d{};
    [[maybe_unused]] const loader e{};
    [[maybe_unused]] const pool f{};
    [[maybe_unused]] const rank g{};
    [[maybe_unused]] const world h{};
    [[maybe_unused]] const error i{};
    [[maybe_unused]] const step j{};

    if (category_seen_by_other() != &trireme::error_category()) {
        std::puts("the error category is two objects in one program");
        return 1;
    }
    return version_seen_by_other() == trireme::version.minor_part ? 0 : 1;
}
