#pragma once
// The floor `data`: datasets, orders, engines and the loader.
// This list is kept by scripts/list_headers.py.

#include <trireme/data/batch.hpp>
#include <trireme/data/byte_source.hpp>
#include <trireme/data/context.hpp>
#include <trireme/data/dataset.hpp>
#include <trireme/data/engine/caller.hpp>
#include <trireme/data/engine/forked.hpp>
#include <trireme/data/engine/threads.hpp>
#include <trireme/data/idx.hpp>
#include <trireme/data/idx_images.hpp>
#include <trireme/data/loader.hpp>
#include <trireme/data/loader_options.hpp>
#include <trireme/data/order.hpp>
#include <trireme/data/row.hpp>
#include <trireme/data/sampling.hpp>
#include <trireme/data/schema.hpp>
#include <trireme/data/tensor_view.hpp>
