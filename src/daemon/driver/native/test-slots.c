/* Leases of slots: unique between daemons, kept for the dead who left sandboxes, rested before
 * reuse. */
#include "daemon/driver/native/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/path.h"
#include "base/test.h"

static char dir[] = "/tmp/test-slots-XXXXXX";

static void make_dir(void) {
    ASSERT(mkdtemp(dir));
}

static void remove_dir(void) {
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, dir));
}

static struct slots *open_slots(const char *owner, unsigned limit) {
    struct slots *s;
    struct err err = {0};
    ASSERT_OK(slots_open(dir, owner, limit, &s, &err));
    return s;
}

TEST(two_daemons_never_share_a_slot) {
    make_dir();
    struct slots *a = open_slots("/a", 4 * SLOTS_PER_BLOCK),
                 *b = open_slots("/b", 4 * SLOTS_PER_BLOCK);
    bool seen[4 * SLOTS_PER_BLOCK] = {false};

    for (unsigned i = 0; i < 2 * SLOTS_PER_BLOCK; i++) {
        unsigned x, y;
        ASSERT_OK(slots_take(a, &x, NULL));
        ASSERT_OK(slots_take(b, &y, NULL));
        ASSERT(x < ARRAY_SIZE(seen) && y < ARRAY_SIZE(seen) && !seen[x] && x != y && !seen[y]);
        seen[x] = seen[y] = true;
    }
    unsigned none;
    struct err err = {0};
    ASSERT_INT(slots_take(a, &none, &err), -ENOSPC);
    ASSERT(strstr(err.msg, "1024"));
    slots_free(a);
    slots_free(b);
    remove_dir();
}

TEST(a_freed_slot_rests_as_long_as_possible) {
    make_dir();
    struct slots *s = open_slots("/a", SLOTS_PER_BLOCK);
    unsigned first, next;

    ASSERT_OK(slots_take(s, &first, NULL));
    slots_give_back(s, first);
    for (unsigned i = 0; i + 1 < SLOTS_PER_BLOCK; i++) {
        ASSERT_OK(slots_take(s, &next, NULL));
        ASSERT(next != first);
    }
    ASSERT_OK(slots_take(s, &next, NULL));
    ASSERT_INT(next, first);
    slots_free(s);
    remove_dir();
}

TEST(claims_of_recovery) {
    make_dir();
    struct slots *a = open_slots("/a", 2 * SLOTS_PER_BLOCK);

    ASSERT_OK(slots_claim(a, 7));
    ASSERT_INT(slots_claim(a, 7), -EBUSY);
    ASSERT_INT(slots_claim(a, 2 * SLOTS_PER_BLOCK), -ERANGE);
    struct slots *b = open_slots("/b", 2 * SLOTS_PER_BLOCK);
    ASSERT_INT(slots_claim(b, 7), -EBUSY);
    ASSERT_OK(slots_claim(b, SLOTS_PER_BLOCK));
    slots_give_back(a, 7);
    ASSERT_OK(slots_claim(a, 7));
    slots_free(a);
    slots_free(b);
    remove_dir();
}

/* A process that takes a slot and dies without giving it back. */
static void take_and_die(const char *owner) {
    pid_t pid = fork();
    if (pid == 0) {
        unsigned slot;
        struct slots *s = open_slots(owner, SLOTS_PER_BLOCK);
        _exit(slots_take(s, &slot, NULL) == 0 ? 0 : 1);
    }
    int status;
    ASSERT(waitpid(pid, &status, 0) == pid && status == 0);
}

TEST(a_dead_daemons_block_is_kept_only_while_it_has_sandboxes) {
    char state[64], sandbox[96];
    unsigned slot;

    make_dir();
    snprintf(state, sizeof state, "%s/state", dir);
    snprintf(sandbox, sizeof sandbox, "%s/sandboxes/s1", state);
    ASSERT_OK(path_mkdirs_at(AT_FDCWD, sandbox, 0755));
    take_and_die(state);
    struct slots *other = open_slots("/b", SLOTS_PER_BLOCK);
    ASSERT_INT(slots_take(other, &slot, NULL), -ENOSPC);
    struct slots *again = open_slots(state, SLOTS_PER_BLOCK);
    ASSERT_OK(slots_take(again, &slot, NULL));
    slots_give_back(again, slot);
    slots_free(again);
    take_and_die(state);
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, sandbox));
    ASSERT_OK(slots_take(other, &slot, NULL));
    slots_free(other);
    remove_dir();
}

static void count(const char *state_dir, void *ud) {
    ASSERT(str_ends(state_dir, "/gone"));
    ++*(unsigned *)ud;
}

static void die(const char *state_dir, void *ud) {
    _exit(0);
}

TEST(a_block_without_state_directory_is_free_only_when_its_sandboxes_were_ended) {
    char gone[64];
    unsigned slot, n = 0;

    make_dir();
    snprintf(gone, sizeof gone, "%s/gone", dir);
    take_and_die(gone);
    struct slots *other = open_slots("/b", SLOTS_PER_BLOCK);
    ASSERT_INT(slots_take(other, &slot, NULL), -ENOSPC);
    pid_t pid = fork();
    if (pid == 0) /* killed while it ends them */
        slots_collect_dead(other, die, NULL);
    int status;
    ASSERT(waitpid(pid, &status, 0) == pid && status == 0);
    slots_collect_dead(other, count, &n);
    slots_collect_dead(other, count, &n);
    ASSERT_INT(n, 1);
    ASSERT_OK(slots_take(other, &slot, NULL));
    slots_free(other);
    remove_dir();
}

TEST_MAIN()
