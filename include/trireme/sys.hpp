#pragma once
// The floor `sys`: the operating system: descriptors, futexes, child processes, clocks, CPUs.
// This list is kept by scripts/list_headers.py.

#include <trireme/sys/affinity.hpp>
#include <trireme/sys/cgroup.hpp>
#include <trireme/sys/clock.hpp>
#include <trireme/sys/cpu_set.hpp>
#include <trireme/sys/fd.hpp>
#include <trireme/sys/fork_gate.hpp>
#include <trireme/sys/futex.hpp>
#include <trireme/sys/memfd.hpp>
#include <trireme/sys/memory.hpp>
#include <trireme/sys/process.hpp>
#include <trireme/sys/socket.hpp>
#include <trireme/sys/thread.hpp>
#include <trireme/sys/wait.hpp>
