#!/usr/bin/env bash
# The program is built to stop at memory errors: position-independent, relocations resolved at start and read-only afterwards, no
# executable stack, checked stack frames and library calls. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
command -v readelf >/dev/null || { echo "SKIPPED: no readelf" >&2; exit 77; }
symbols=$(readelf -sW "$towers")
[[ $symbols == *__asan_init* || $symbols == *__tsan_init* ]] && { echo "SKIPPED: a build with sanitizers" >&2; exit 77; }
readelf -hW "$towers" | grep -qE 'Type: +DYN' || complain "not position-independent: $(readelf -hW "$towers" | grep Type)"
readelf -dW "$towers" | grep -qE 'FLAGS.*(NOW|BIND_NOW)' || complain "relocations are resolved late"
readelf -lW "$towers" | grep -q GNU_RELRO || complain "relocations stay writable"
readelf -lW "$towers" | grep GNU_STACK | grep -q 'RWE' && complain "the stack is executable"
[[ $symbols == *__stack_chk_fail* ]] || complain "stack frames are not checked"
for call in __snprintf_chk __memcpy_chk; do [[ $symbols == *$call* ]] || complain "library calls are not checked: no $call"; done
check_end "the program is hardened"
