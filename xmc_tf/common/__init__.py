"""What every part uses: errors that say what to do, progress, atomic writes, the shell of a command line."""
