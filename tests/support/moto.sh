# shellcheck shell=bash
# Source this after check.sh: a store of others, moto's S3, with signatures checked.
#
#   moto_begin FOLDER WHAT   in place of the process $server: its bucket pets has the files of the folder. Sets server, port, id, secret and
#                            python. Fails if pip cannot get moto, and leaves out WHAT, or if moto does not start, and complains

moto_home=$HOME moto_cache=${XDG_CACHE_HOME:-$HOME/.cache} # of the user, before a test has its own

moto_begin() {
    if ! python=$(HOME=$moto_home XDG_CACHE_HOME=$moto_cache "$source_dir/scripts/venv.sh" s3 2>"$work/pip"); then
        left_out "$2 moto's S3: pip could not get the packages of scripts/requirements/s3.txt: $(tail -n 1 "$work/pip")"
        return 1
    fi
    kill "$server"
    wait "$server" 2>/dev/null
    coproc MOTO { exec "$python" "$source_dir/tests/support/s3_moto.py" "$1" 2>"$work/moto.err"; }
    server=$MOTO_PID
    read -r port id secret <&"${MOTO[0]}" && return
    complain "moto does not start: $(tail -n 3 "$work/moto.err")"
    return 1
}
