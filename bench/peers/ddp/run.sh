#!/usr/bin/env bash
# Called by ../run.sh. Names: small wide. PEERS_DATA: folder of the Fashion-MNIST .gz files. PEERS_ROUNDS: how often.
# Each round runs twice: as installed, and with malloc told to keep large blocks, which spares PyTorch the page faults
# of its large temporaries (the peers' best configuration). There is no bound.
area=ddp
source "$PEERS_ROOT/common/lib.sh"
peers && has_python torch.distributed || exit 0
K="env MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_TOP_PAD_=67108864"
for _ in $(seq "${PEERS_ROUNDS:-1}"); do
    [ "${PEERS_DEFAULT_MALLOC:-1}" = 1 ] && $Q "$PYTHON" ddp.py "$PEERS_DATA" "$@"
    $Q $K "$PYTHON" ddp.py "$PEERS_DATA" "$@"
done
exit 0
