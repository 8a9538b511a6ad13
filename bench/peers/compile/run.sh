#!/usr/bin/env bash
# Called by ../run.sh: time and peak memory of a translation unit that includes one header. Rounds: PEERS_REPS.
area=compile
source "$PEERS_ROOT/common/lib.sh"
unit() { # peer, header text, further flags
    $PYTHON include_time.py "$1" "$2" ${3:-}
}
if bounds; then
    unit empty ''
    unit std-thread-atomic-vector $'#include <thread>\n#include <atomic>\n#include <vector>\n#include <functional>\n#include <span>'
    unit std-future-mutex-cv $'#include <future>\n#include <mutex>\n#include <condition_variable>'
    unit std-ranges-algorithm $'#include <ranges>\n#include <algorithm>'
    unit std-iostream '#include <iostream>'
fi
peers || exit 0
unit torch '#include <torch/torch.h>' "-I/usr/include/torch/csrc/api/include"
unit taskflow '#include <taskflow/taskflow.hpp>' "-I$PEERS_SRC/taskflow"
unit bs-thread_pool '#include <BS_thread_pool.hpp>' "-I$PEERS_SRC/bsthread/include"
D=$PEERS_SRC/dispenso P=$PEERS_SRC/dispenso/dispenso/third-party
unit dispenso-parallel_for '#include <dispenso/parallel_for.h>' "-I$D -I$P -I$P/moodycamel"
unit tbb '#include <tbb/tbb.h>'
unit tbb-parallel_for '#include <tbb/parallel_for.h>'
unit rvaser-thread_pool '#include <thread_pool/thread_pool.hpp>'
unit boost-managed_shared_memory '#include <boost/interprocess/managed_shared_memory.hpp>'
unit boost-asio $'#include <utility>\n#include <boost/asio.hpp>' # 1.74 lacks <utility>
unit boost-message_queue '#include <boost/interprocess/ipc/message_queue.hpp>'
unit doctest $'#define DOCTEST_CONFIG_IMPLEMENT\n#include <doctest/doctest.h>'
unit eigen '#include <Eigen/Dense>' '-I/usr/include/eigen3'
unit gloo-allreduce '#include <gloo/allreduce.h>'
unit mpi '#include <mpi.h>' "$(mpicxx --showme:compile 2>/dev/null)"
exit 0
