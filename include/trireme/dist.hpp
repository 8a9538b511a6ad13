#pragma once
// The floor `dist`: ranks, transports and data-parallel training.
// This list is kept by scripts/list_headers.py.

#include <trireme/dist/bucket.hpp>
#include <trireme/dist/ddp.hpp>
#include <trireme/dist/environment.hpp>
#include <trireme/dist/launch.hpp>
#include <trireme/dist/plan.hpp>
#include <trireme/dist/progress.hpp>
#include <trireme/dist/reduction.hpp>
#include <trireme/dist/self.hpp>
#include <trireme/dist/shm_transport.hpp>
#include <trireme/dist/store.hpp>
#include <trireme/dist/thread_transport.hpp>
#include <trireme/dist/transport.hpp>
#include <trireme/dist/world.hpp>
