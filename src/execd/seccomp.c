/*
 * The small filter. The base filter of the sandbox must leave clone3 and namespace flags open for
 * the agent; here they are closed for everybody else. clone3 answers ENOSYS, so that the C library
 * falls back to clone, whose flags a filter can read. Foreign system call tables answer ENOSYS as
 * well.
 */
#include "execd/seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
// cppcheck-suppress preprocessorErrorDirective
#error "no audit architecture for this machine"
#endif

#define X32_BIT 0x40000000U
#define NAMESPACE_FLAGS 0x7E020000U /* CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET} */

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(v) BPF_STMT(BPF_RET | BPF_K, (v))
#define FAIL(e) RETURN(SECCOMP_RET_ERRNO | (e))
#define IF_EQ(v, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (v), (yes), (no))
#define IF_GE(v, yes, no) BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (v), (yes), (no))
#define IF_BITS(v, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (v), (yes), (no))

static struct sock_filter program[] = {
    LOAD(arch),
    IF_EQ(NATIVE_ARCH, 1, 0),
    FAIL(ENOSYS),
    LOAD(nr),
    IF_GE(X32_BIT, 0, 1),
    FAIL(ENOSYS),
    IF_EQ(SYS_clone3, 0, 1),
    FAIL(ENOSYS),
    IF_EQ(SYS_setns, 0, 1),
    FAIL(EPERM),
    IF_EQ(SYS_clone, 1, 0),
    IF_EQ(SYS_unshare, 0, 4),
    /* clone, unshare */
    LOAD(args[0]),
    IF_BITS(NAMESPACE_FLAGS, 0, 1),
    FAIL(EPERM),
    RETURN(SECCOMP_RET_ALLOW),
    IF_EQ(SYS_socket, 1, 0),
    IF_EQ(SYS_socketpair, 0, 8),
    /* socket, socketpair */
    LOAD(args[0]),
    IF_EQ(AF_UNIX, 6, 0),
    IF_EQ(AF_INET, 5, 0),
    IF_EQ(AF_INET6, 4, 0),
    IF_EQ(AF_NETLINK, 0, 2),
    LOAD(args[2]), /* of netlink only NETLINK_ROUTE = 0 */
    IF_EQ(0, 1, 0),
    FAIL(EAFNOSUPPORT),
    RETURN(SECCOMP_RET_ALLOW),
};

int seccomp_confine(void) {
    struct sock_fprog prog = {ARRAY_SIZE(program), program};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
        return -errno;
    return 0;
}
