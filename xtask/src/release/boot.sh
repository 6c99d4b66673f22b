#!/bin/sh
# Runs inside a booted Debian, as root, with the package in /homa.deb: see boot.rs.
set -eux
key=/etc/homa/cluster.key
call() { homa call --key "$key" "$@" 127.0.0.1:4000; }
# `set -e` would ignore `! command`.
fails() { if "$@"; then return 1; fi; }
property() { systemctl show --property "$1" --value "$2"; }
# A command that restarts the service loses no call. `homa call` fails if one has no answer.
loses_no_call() {
    call --count 600 --rate 200 --deadline 10s &
    calls=$!
    for _ in 1 2 3; do
        sleep 0.7
        "$@"
    done
    wait "$calls"
}
# The watchdog ends a process that does nothing, and the call waits for the next one. The process
# may take the request before it dies, so the call may run twice.
is_watched() {
    kill -STOP "$(property MainPID "$1")"
    call --idempotent --deadline 60s
    test "$(property NRestarts "$1")" = 1
}

dpkg --install /homa.deb
# Installing starts nothing, and without a key the units say so.
test "$(systemctl is-active homa-echo.service)" = inactive
fails systemctl start homa-echo.socket

homa key new "$key"
systemctl enable --now homa-echo.socket homa-echo.service
call

loses_no_call systemctl restart homa-echo.service
is_watched homa-echo.service
# An upgrade restarts the service, and keeps what the administrator has set.
echo '# ours' >>/etc/default/homa-echo
before=$(property MainPID homa-echo.service)
loses_no_call dpkg --install /homa.deb
test "$(property MainPID homa-echo.service)" != "$before"
grep --quiet '# ours' /etc/default/homa-echo
systemctl disable --now homa-echo.socket homa-echo.service

# A service of another kind, as docs/operating/upgrade.md says.
units=/etc/systemd/system
cp /usr/lib/systemd/system/homa-echo.service $units/my-service.service
cp /usr/lib/systemd/system/homa-echo.socket $units/my-service.socket
sed -i 's|^ExecStart=.*|ExecStart=/my-service|' $units/my-service.service
systemctl daemon-reload
systemctl enable --now my-service.socket my-service.service
test "$(call --data upper)" = UPPER
loses_no_call systemctl restart my-service.service
is_watched my-service.service
systemctl disable --now my-service.socket my-service.service
rm $units/my-service.service $units/my-service.socket

# Removal ends a running service, and leaves nothing but the key.
systemctl enable --now homa-echo.socket homa-echo.service
dpkg --purge homa
fails systemctl is-active homa-echo.socket homa-echo.service
rm "$key"
rmdir /etc/homa
left=$(find / -xdev \( -name 'homa*' -o -name _homa \) ! -name homa.deb ! -name homa-check.service)
test -z "$left"
echo PASSED
