#!/usr/bin/env bash
# Runs a test script if this build and this machine have a device to compute on; otherwise reports that and is skipped.
# usage: on_a_device.sh SCRIPT SOURCE_FOLDER BINARY
set -uo pipefail
why=$("$3" info fashion_cnn --batch-size 1 2>&1 >/dev/null)
case $why in
*'no cpu backend'* | *'no NVIDIA driver'* | *'no CUDA device'*)
    echo "SKIPPED: there is no device to compute on: $why" >&2
    exit 77
    ;;
esac
exec bash "$@"
