#!/bin/sh
# Lets a container's user be reached by ssh from the others of its job, which have its key: mpiexec and horovodrun start
# their ranks that way. The server runs as that user, on a port above 1024; the job's key is mounted at ~/.ssh.
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
# The key's folder is a mounted secret, which belongs to root.
StrictModes no
END
cat >> /etc/ssh/ssh_config <<END
Host *
    Port $port
    # Hosts come and go with the job; who they are is the cluster's business.
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
END
