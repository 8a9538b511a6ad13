#!/usr/bin/env bash
# Called by ../run.sh. Names: which of gloo torch mpi. PEERS_RANKS: the numbers of processes (default "2 4").
area=allreduce
source "$PEERS_ROOT/common/lib.sh"
F="-std=c++20 -O3 -march=native -pthread -w"
names="$*"
want() { [ -z "$names" ] || case " $names " in *" $1 "*) ;; *) false ;; esac; }
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
if bounds; then
    build ar_limit $CXX $F shm_limit.cpp && start ar_limit
fi
peers || exit 0
want gloo && build ar_gloo $CXX ${F/c++20/c++17} gloo_bench.cpp -lgloo
want mpi && export OMPI_CXX=$CXX && build ar_mpi mpicxx $F mpi_bench.cpp
want torch && has_python torch.distributed && torch=yes
for p in ${PEERS_RANKS:-2 4}; do
    want gloo && start ar_gloo "$p"
    want torch && [ "${torch:-no}" = yes ] && $Q "$PYTHON" torch_gloo.py "$p"
    want mpi && [ -x "$T/ar_mpi" ] || continue
    M="mpirun --allow-run-as-root --oversubscribe -np $p --mca btl vader,self --mca pml ob1"
    [ "$p" = 2 ] && M="$M --bind-to core"
    [ "$p" = 2 ] || M="$M --bind-to none"
    PEERS_NAME=openmpi-nocma $Q $M --mca btl_vader_single_copy_mechanism none "$T/ar_mpi"
    # the same with large blocks kept by malloc, so that scratch memory is not faulted in anew
    PEERS_NAME=openmpi-nocma-keepmem $Q $M -x MALLOC_MMAP_THRESHOLD_=4000000000 \
        -x MALLOC_TRIM_THRESHOLD_=8000000000 --mca btl_vader_single_copy_mechanism none "$T/ar_mpi"
    PEERS_NAME=openmpi-cma $Q $M --mca btl_vader_single_copy_mechanism cma "$T/ar_mpi"
done
exit 0
