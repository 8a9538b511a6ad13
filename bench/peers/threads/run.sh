#!/usr/bin/env bash
# Called by ../run.sh. Names: forkjoin tasks fine triangle reduce nested. PEERS_SRC: folder for the libraries that are
# not packaged: taskflow/, dispenso/, bsthread/; each is left out if absent.
area=threads
source "$PEERS_ROOT/common/lib.sh"
F="-std=c++20 -O3 -march=native -pthread -w"
if bounds; then
    build t_limit $CXX $F t_limit.cpp && start t_limit "$@"
fi
peers || exit 0
if build t_omp $CXX $F -fopenmp t_omp.cpp; then
    PEERS_NAME=libgomp-default start t_omp "$@"
    PEERS_NAME=libgomp-default-dynamic PEERS_OMP_DYNAMIC=1 start t_omp "$@"
    PEERS_NAME=libgomp-active OMP_WAIT_POLICY=active start t_omp "$@"
    PEERS_NAME=libgomp-passive OMP_WAIT_POLICY=passive start t_omp "$@"
    PEERS_NAME=libgomp-passive-bound OMP_PROC_BIND=true OMP_WAIT_POLICY=passive start t_omp "$@"
fi
build t_tbb $CXX $F t_tbb.cpp -ltbb && start t_tbb "$@"
build t_rvaser $CXX $F t_rvaser.cpp && start t_rvaser "$@"
build t_bs $CXX $F "-I$PEERS_SRC/bsthread/include" t_bs.cpp && start t_bs "$@"
build t_taskflow $CXX $F "-I$PEERS_SRC/taskflow" t_taskflow.cpp && start t_taskflow "$@"
D=$PEERS_SRC/dispenso P=$PEERS_SRC/dispenso/dispenso/third-party
if [ -d "$D" ]; then
    [ -f "$T/disp/dispenso/libdispenso.a" ] ||
        { cmake -S "$D" -B "$T/disp" -DCMAKE_BUILD_TYPE=Release -DDISPENSO_SHARED_LIB=OFF \
            -DCMAKE_CXX_FLAGS=-march=native -DCMAKE_CXX_STANDARD=20 &&
            cmake --build "$T/disp" --target dispenso; } >"$T/disp.log" 2>&1
    build t_dispenso $CXX $F "-I$D" "-I$P" "-I$P/moodycamel" t_dispenso.cpp "$T/disp/dispenso/libdispenso.a" &&
        start t_dispenso "$@"
else
    left_out "no $D"
fi
build t_at $CXX ${F/c++20/c++17} -fopenmp t_at.cpp -ltorch -ltorch_cpu -lc10 && start t_at "$@"
exit 0
