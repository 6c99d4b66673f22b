#!/bin/sh
# Runs inside a booted Debian, as root, with the package in /homa.deb: see boot.rs.
set -eux
key=/etc/homa/cluster.key
call() { homa call --key "$key" "$@" 127.0.0.1:4000; }
restarts() { systemctl show --property NRestarts --value homa-echo.service; }

dpkg --install /homa.deb
# Installing starts nothing, and without a key the units say so.
test "$(systemctl is-active homa-echo.service)" = inactive
! systemctl start homa-echo.socket

homa key new "$key"
systemctl enable --now homa-echo.socket homa-echo.service
call

# A restart loses no call. `homa call` fails if one has no answer.
call --count 600 --rate 200 --deadline 10s &
calls=$!
for _ in 1 2 3; do
    sleep 0.7
    systemctl restart homa-echo.service
done
wait "$calls"

# The watchdog ends a process that does nothing, and the call waits for the next one.
kill -STOP "$(systemctl show --property MainPID --value homa-echo.service)"
call --deadline 60s
test "$(restarts)" = 1

systemctl stop homa-echo.socket homa-echo.service
dpkg --purge homa
rm "$key"
rmdir /etc/homa
echo PASSED
