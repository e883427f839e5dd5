/* The command table: names, words, options and the texts that teach them. */
#include <limits.h>

#include "cli/cli.h"

#define OPTIONS(...) ((const enum option_id[]){__VA_ARGS__, N_OPTIONS})

const struct command commands[] = {
    {
        .name = "run",
        .synopsis = "[OPTIONS] [--] COMMAND [ARG...]",
        .summary = "run a command in a sandbox of its own",
        .about = "Makes a fresh sandbox, runs the command in it with your stdin, stdout and "
                 "stderr, and removes the\n"
                 "sandbox when the command ends. By default it sees this machine's programs "
                 "read-only, has no network,\n"
                 "and cannot see your files: show it a directory with --mount. Where no daemon "
                 "runs, one is started for\n"
                 "this command alone and leaves nothing behind. A daemon on a Docker Engine "
                 "needs an --image of it, and its\n"
                 "configuration decides on the network.\n"
                 "\n"
                 "The exit status is the command's; 128+N when signal N killed it, 124 after "
                 "--timeout, 125 when cove\n"
                 "itself failed, 126 and 127 when the command cannot be executed or found, 130 "
                 "after Ctrl-C. Ctrl-C kills\n"
                 "everything in the sandbox and removes it; pressed twice, cove quits at once (a "
                 "shared daemon then ends the\n"
                 "sandbox half an hour later).\n",
        .examples =
            "cove run -- python3 script.py < input.txt > output.txt\n"
            "    a script's data goes in and out; nothing else does\n"
            "cove run --mount .:/workspace -- make test\n"
            "    builds in the present directory, which is the only one it may change\n"
            "cove run --mount .:/workspace:ro --memory 512m --cpu 1 --timeout 30s -- ./untrusted\n"
            "    reads the directory, with limits\n"
            "cove run -it -- bash\n"
            "    a shell to look around\n"
            "cove run --network nat -- curl -sS example.org\n"
            "    with outgoing connections\n"
            "cove run --image debian:12 -- cat /etc/os-release\n"
            "    on a daemon of a Docker Engine\n",
        .options = OPTIONS(OPT_IMAGE, OPT_ENV, OPT_CWD, OPT_MOUNT, OPT_NETWORK, OPT_CPU, OPT_MEMORY,
                           OPT_PIDS, OPT_DISK, OPT_TIMEOUT, OPT_USER, OPT_INTERACTIVE, OPT_TTY,
                           OPT_LABEL, OPT_PRIVATE),
        .min_words = 1,
        .max_words = UINT_MAX,
        .missing = "say which command to run, as in: cove run -- python3 script.py",
        .word = WORD_PROGRAM,
        .next_word = WORD_FILE,
        .passes_command = true,
        .usage_status = EXIT_COVE,
        .run = cmd_run,
    },
    {
        .name = "create",
        .synopsis = "[OPTIONS] [--] [COMMAND [ARG...]]",
        .summary = "create a sandbox that stays, and print its id",
        .about = "Makes a sandbox and leaves it running, for many commands by `cove exec`. The "
                 "command, if one is given,\n"
                 "is the sandbox's main process: when it ends, the sandbox ends, and `cove logs` "
                 "shows what it wrote.\n"
                 "Without one the sandbox lives until `cove rm`, or until --expire removes it.\n",
        .examples = "box=$(cove create --memory 1g --expire 1h)\n"
                    "    a sandbox for an hour; its id is kept in a variable\n"
                    "cove exec $box -- sh -c 'echo hello > /tmp/greeting'\n"
                    "    files stay from one command to the next\n"
                    "cove create --image local/node --network nat -- node server.js\n"
                    "    a service as the main process\n",
        .options = OPTIONS(OPT_IMAGE, OPT_ENV, OPT_CWD, OPT_MOUNT, OPT_NETWORK, OPT_CPU, OPT_MEMORY,
                           OPT_PIDS, OPT_DISK, OPT_EXPIRE, OPT_LABEL),
        .max_words = UINT_MAX,
        .word = WORD_PROGRAM,
        .next_word = WORD_FILE,
        .passes_command = true,
        .usage_status = EXIT_USAGE,
        .run = cmd_create,
    },
    {
        .name = "ps",
        .synopsis = "[OPTIONS]",
        .summary = "list sandboxes",
        .about = "Shows the sandboxes of the daemon, newest first. Ids may be shortened wherever "
                 "an id is asked for, as\n"
                 "long as only one sandbox begins that way.\n",
        .examples = "cove ps\n"
                    "    a table for people\n"
                    "cove ps -q --state Running\n"
                    "    the ids of running ones\n"
                    "cove ps --json\n"
                    "    everything the daemon knows, one array\n",
        .options = OPTIONS(OPT_QUIET, OPT_STATE),
        .usage_status = EXIT_USAGE,
        .run = cmd_ps,
    },
    {
        .name = "exec",
        .synopsis = "[OPTIONS] SANDBOX [--] COMMAND [ARG...]",
        .summary = "run a command in a sandbox that exists",
        .about = "Runs one more command in the sandbox, with your stdin, stdout and stderr. Exit "
                 "statuses are as in\n"
                 "`cove run`. Ctrl-C is passed on to the command; pressed twice, the command is "
                 "killed.\n",
        .examples = "cove exec 3f2a -- ls -l /tmp\n"
                    "    the beginning of the id is enough\n"
                    "tar c src | cove exec 3f2a -- tar x -C /tmp\n"
                    "    a pipe as stdin\n"
                    "cove exec -it --cwd /tmp 3f2a -- bash\n"
                    "    a terminal\n",
        .options = OPTIONS(OPT_ENV, OPT_CWD, OPT_USER, OPT_TIMEOUT, OPT_INTERACTIVE, OPT_TTY),
        .min_words = 2,
        .max_words = UINT_MAX,
        .missing = "say in which sandbox, and which command, as in: cove exec 3f2a -- ls /tmp",
        .word = WORD_SANDBOX,
        .next_word = WORD_PROGRAM,
        .passes_command = true,
        .usage_status = EXIT_COVE,
        .run = cmd_exec,
    },
    {
        .name = "cp",
        .synopsis = "[OPTIONS] SANDBOX:PATH LOCAL | LOCAL SANDBOX:PATH",
        .summary = "copy files and directories in or out",
        .about = "Copies a file, or a directory with everything in it, as `cp -r` does: into an "
                 "existing directory under\n"
                 "its own name, else under the name given. Permissions are kept, links stay links. "
                 "Nothing has to be\n"
                 "installed in the sandbox. \"-\" as LOCAL is stdin or stdout, for one file.\n"
                 "\n"
                 "Exit status 1, with a line for each, when something had to be left out (sockets, "
                 "devices).\n",
        .examples = "cove cp ./project 3f2a:/workspace\n"
                    "    a directory in\n"
                    "cove cp 3f2a:/workspace/out ./results\n"
                    "    a directory out\n"
                    "cove cp 3f2a:/etc/os-release - | head -1\n"
                    "    one file to a pipe\n",
        .options = (const enum option_id[]){N_OPTIONS},
        .min_words = 2,
        .max_words = 2,
        .missing = "name a source and a target, as in: cove cp ./file 3f2a:/tmp/file",
        .word = WORD_COPY,
        .next_word = WORD_COPY,
        .usage_status = EXIT_USAGE,
        .run = cmd_cp,
    },
    {
        .name = "logs",
        .synopsis = "[OPTIONS] SANDBOX",
        .summary = "show what a sandbox's main process wrote",
        .about = "Shows the last lines that the main process of the sandbox (the command of `cove "
                 "create`) wrote to stdout\n"
                 "and stderr. Commands of `cove exec` write to their caller, not here.\n",
        .examples = "cove logs 3f2a\n"
                    "    the last 100 lines\n"
                    "cove logs --tail 5000 3f2a | grep -i error\n"
                    "    search more of them\n",
        .options = OPTIONS(OPT_TAIL),
        .min_words = 1,
        .max_words = 1,
        .missing = "say which sandbox, as in: cove logs 3f2a (`cove ps` lists them)",
        .word = WORD_SANDBOX,
        .usage_status = EXIT_USAGE,
        .run = cmd_logs,
    },
    {
        .name = "rm",
        .synopsis = "[OPTIONS] SANDBOX...",
        .summary = "remove sandboxes",
        .about = "Kills everything in the sandbox and removes it with its files. Returns when "
                 "nothing of it runs any more.\n",
        .examples = "cove rm 3f2a\n"
                    "    one\n"
                    "cove rm --all\n"
                    "    every sandbox of the daemon\n",
        .options = OPTIONS(OPT_ALL, OPT_FORCE),
        .min_words = 1,
        .max_words = UINT_MAX,
        .missing = "say which sandbox, as in: cove rm 3f2a (or --all; `cove ps` lists them)",
        .word = WORD_SANDBOX,
        .next_word = WORD_SANDBOX,
        .usage_status = EXIT_USAGE,
        .run = cmd_rm,
    },
    {
        .name = "image ls",
        .synopsis = "[OPTIONS]",
        .summary = "list the images that sandboxes can start from",
        .about = "Shows the images in the daemon's store. \"host\", this machine's own programs, "
                 "is always there besides.\n",
        .examples = "cove image ls\n"
                    "    a table\n"
                    "cove image ls --json\n"
                    "    all details\n",
        .options = OPTIONS(OPT_QUIET),
        .usage_status = EXIT_USAGE,
        .run = cmd_image_ls,
    },
    {
        .name = "image import",
        .synopsis = "[OPTIONS] ARCHIVE NAME",
        .summary = "make an image from a root file system archive",
        .about =
            "Stores a tar archive (plain, gzip, zstd, xz or bzip2) as local/NAME: of a root file "
            "system, of an OCI\n"
            "layout, or as `docker save` writes it. \"-\" reads the archive from stdin. A second "
            "import under the same\n"
            "name replaces the first; sandboxes that run keep what they started from.\n",
        .examples = "cove image import rootfs.tar.zst debian\n"
                    "    then: cove run --image local/debian -- sh\n"
                    "docker export $(docker create alpine) | cove image import - alpine\n"
                    "    from a container of another engine\n",
        .options = (const enum option_id[]){N_OPTIONS},
        .min_words = 2,
        .max_words = 2,
        .missing = "name the archive and the image, as in: cove image import rootfs.tar debian",
        .word = WORD_FILE,
        .next_word = WORD_IMAGE,
        .usage_status = EXIT_USAGE,
        .run = cmd_image_import,
    },
    {
        .name = "image rm",
        .synopsis = "[OPTIONS] IMAGE...",
        .summary = "remove images",
        .about = "Removes the name, and with the last name of an image its files that nothing else "
                 "needs.\n",
        .examples = "cove image rm local/debian\n"
                    "    one\n",
        .options = OPTIONS(OPT_FORCE),
        .min_words = 1,
        .max_words = UINT_MAX,
        .missing =
            "say which image, as in: cove image rm local/debian (`cove image ls` lists them)",
        .word = WORD_IMAGE,
        .next_word = WORD_IMAGE,
        .usage_status = EXIT_USAGE,
        .run = cmd_image_rm,
    },
    {
        .name = "doctor",
        .synopsis = "[OPTIONS]",
        .summary = "check what this machine has, and say what to do",
        .about = "Checks the kernel, cgroups, namespaces, the runtime program, disk space, ports "
                 "and the daemon. For\n"
                 "everything that is missing it says why that matters and which command mends it. "
                 "Exit status 1 when\n"
                 "something essential is missing.\n",
        .examples = "cove doctor\n"
                    "    for people\n"
                    "cove doctor --json | jq '.checks[] | select(.status != \"ok\")'\n"
                    "    for programs\n",
        .options = (const enum option_id[]){N_OPTIONS},
        .usage_status = EXIT_USAGE,
        .run = cmd_doctor,
    },
    {
        .name = "completion",
        .synopsis = "bash|zsh|fish",
        .summary = "print a script that completes cove's commands in your shell",
        .about =
            "The script completes commands, options, their values, and the ids of sandboxes.\n",
        .examples = "source <(cove completion bash)\n"
                    "    in ~/.bashrc\n"
                    "cove completion zsh > \"${fpath[1]}/_cove\"\n"
                    "    once\n"
                    "cove completion fish > ~/.config/fish/completions/cove.fish\n"
                    "    once\n",
        .options = (const enum option_id[]){N_OPTIONS},
        .min_words = 1,
        .max_words = 1,
        .missing = "say for which shell: bash, zsh or fish",
        .word = WORD_SHELL,
        .usage_status = EXIT_USAGE,
        .run = cmd_completion,
    },
    {
        .name = "version",
        .synopsis = "[OPTIONS]",
        .summary = "show the versions of cove and of the daemon",
        .about = "Shows the version of this program, and of the daemon when one answers.\n",
        .examples = "cove version\n"
                    "    both versions\n",
        .options = (const enum option_id[]){N_OPTIONS},
        .usage_status = EXIT_USAGE,
        .run = cmd_version,
    },
    {
        .name = "help",
        .synopsis = "[COMMAND]",
        .summary = "explain a command",
        .about = "The same as `cove COMMAND --help`.\n",
        .examples = "cove help run\n"
                    "    everything about run\n",
        .options = (const enum option_id[]){N_OPTIONS},
        .max_words = 2,
        .word = WORD_COMMAND,
        .next_word = WORD_COMMAND,
        .usage_status = EXIT_USAGE,
        .run = cmd_help,
    },
};
const size_t n_commands = ARRAY_SIZE(commands);
