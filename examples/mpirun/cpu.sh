#!/bin/sh
# Eight towers on the CPUs of two hosts, by Open MPI. HOSTS: their names, the first of which keeps the records.
# NAME is the run: the same name continues it, another one begins another run.
# usage: HOSTS=a,b examples/mpirun/cpu.sh NAME MODEL --data-path DIR ...
set -eu
name=$1
shift
first=${HOSTS%%,*}
# After the death of a program the others need some seconds to report it: Open MPI 4 kills them later, Open MPI 5 not at all.
case $(mpirun --version) in
*') 4.'*) wait='--mca odls_base_sigkill_timeout 10' ;;
*) wait='--runtime-options recoverable' ;;
esac
# One program on each host, which may use all of its cores; SIGUSR1 to mpirun is passed on and stops the run, saved.
# shellcheck disable=SC2086
exec mpirun --host "$HOSTS" -np "$(echo "$HOSTS" | tr , '\n' | wc -l)" --map-by node --bind-to none $wait -x MASTER_ADDR="$first" \
    towers train "$@" --device cpu --towers 8 --experiment "$name" --resume auto
