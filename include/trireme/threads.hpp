#pragma once
// The floor `threads`: fork-join teams of threads, where they run and how many there should be.
// This list is kept by scripts/list_headers.py.

#include <trireme/threads/cpu_budget.hpp>
#include <trireme/threads/local_ranks.hpp>
#include <trireme/threads/parallel_for.hpp>
#include <trireme/threads/parallel_reduce.hpp>
#include <trireme/threads/placement.hpp>
#include <trireme/threads/pool.hpp>
#include <trireme/threads/pool_options.hpp>
#include <trireme/threads/schedule.hpp>
