#!/bin/sh
# Eight towers on the CPUs of two hosts, by Open MPI. HOSTS: their names, the first of which keeps the records.
# usage: HOSTS=a,b examples/mpirun/cpu.sh MODEL --data-path DIR ...
set -eu
first=${HOSTS%%,*}
# One program on each host, which may use all of its cores; SIGUSR1 to mpirun is passed on and stops the run, saved.
exec mpirun --host "$HOSTS" -np "$(echo "$HOSTS" | tr , '\n' | wc -l)" --map-by node --bind-to none --mca odls_base_sigkill_timeout 10 -x MASTER_ADDR="$first" \
    towers train "$@" --device cpu --towers 8 --resume auto
