#!/bin/sh
# Start an ssh server through which mpiexec and horovodrun of the same job start ranks in this container. It runs as the
# container's user, on a port above 1024, with the job's key mounted at ~/.ssh.
set -eu
user=$1 port=2222
mkdir -p /etc/ssh/host
ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/host/ed25519
chown -R "$user" /etc/ssh/host
cat > /etc/ssh/workers <<END
Port $port
HostKey /etc/ssh/host/ed25519
PidFile none
PasswordAuthentication no
AllowUsers $user
# The folder of the key is a mounted secret that root owns.
StrictModes no
END
cat >> /etc/ssh/ssh_config <<END
Host *
    Port $port
    # Host keys change with each job, so they are not checked.
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
END
