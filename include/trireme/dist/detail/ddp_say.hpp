#pragma once
// The sentences of ddp.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <trireme/core/error.hpp>
#include <trireme/dist/plan.hpp>
#include <trireme/dist/reduction.hpp>

namespace trireme::detail::say {

inline message ready_too_often(const param_spec& p, std::string who) {
    return {"the gradient of " + describe(p) +
                " was marked ready more often than it is used in a step (uses = " + std::to_string(p.uses) + ")",
            std::move(who),
            "call ready() once for each use of a parameter, and finish() at the end of each step; for a parameter "
            "that several layers share set param_spec::uses"};
}
inline message not_ready(const std::vector<const param_spec*>& missing, std::string who) {
    std::string text = missing.size() == 1 ? "the gradient of " : "the gradients of ";
    for (std::size_t i = 0; i < missing.size() && i < 3; ++i) text += (i == 0 ? "" : ", ") + describe(*missing[i]);
    if (missing.size() > 3) text += " and " + std::to_string(missing.size() - 3) + " more";
    return {
        text + (missing.size() == 1 ? " was" : " were") + " not marked ready before finish()", std::move(who),
        "call ready() for every parameter in every step that ends with finish(); one that has no gradient in this "
        "step keeps zeros and is marked ready as well"};
}
inline message no_such_parameter(std::size_t i, std::size_t count, std::string who) {
    return {"parameter " + std::to_string(i) + " of " + std::to_string(count), std::move(who),
            "count from 0 in the order of the layout"};
}
inline message no_such_name(const std::string& name, std::string who) {
    return {"there is no parameter '" + name + "'", std::move(who), "see the names in the layout"};
}
inline message wrong_type(const param_spec& p, dtype asked, std::string who) {
    return {"parameter " + describe(p) + " was asked for as " + name(asked), std::move(who),
            "ask for the type that the layout gives it"};
}
inline message scope_opened_late(std::size_t marked, std::size_t count, std::string who) {
    return {"no_sync() was opened in the middle of a step: " + std::to_string(marked) + " of " +
                std::to_string(count) + " gradients are ready already",
            std::move(who), "open the scope before the first ready() of the step, around the whole backward pass"};
}

}  // namespace trireme::detail::say
