#!/usr/bin/env bash
# Called by ../run.sh. Names: tiny image work tokens startup; the bounds run all their cases.
# PEERS_DATA: folder of the Fashion-MNIST .gz files.
area=dataloader
source "$PEERS_ROOT/common/lib.sh"
Q="bash $PEERS_ROOT/common/quiet.sh timeout 900"
F="-O2 -march=native -pthread -w"
mkdir -p "$T/fm"
for f in train-images-idx3-ubyte train-labels-idx1-ubyte; do
    [ -s "$T/fm/$f" ] || gzip -dc "$PEERS_DATA/$f.gz" >"$T/fm/$f" || { left_out "no data in $PEERS_DATA"; exit 0; }
done
[ -s "$T/tokens.bin" ] || head -c 268435456 /dev/urandom >"$T/tokens.bin"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
if bounds; then
    build dl_limit $CXX -std=c++20 $F limit.cpp && start dl_limit "$T/fm" "$T/tokens.bin" "$@"
fi
if peers; then
    build loader_libtorch $CXX -std=c++17 $F -I/usr/include/torch/csrc/api/include loader_libtorch.cpp \
        -ltorch -ltorch_cpu -lc10 && start loader_libtorch "$T/fm" "$T/tokens.bin" "$@"
    has_python torch && $Q "$PYTHON" loader_torch.py "$PEERS_DATA" "$T/tokens.bin" "$@"
fi
exit 0
