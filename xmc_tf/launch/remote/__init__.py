"""Commands on other hosts: over ssh, or over connections that the hosts have opened themselves."""
