/* The only program of the image cove-test/scratch: waits for the end. Arguments are ignored. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_end(int sig) {
    (void)sig;
    _exit(0);
}

int main(int argc, char **argv) {
    signal(SIGTERM, on_end);
    signal(SIGINT, on_end);
    if (argc > 2 && strcmp(argv[1], "exit") == 0)
        return (int)strtol(argv[2], NULL, 10);
    puts("pausing");
    fflush(stdout);
    for (;;)
        pause();
}
