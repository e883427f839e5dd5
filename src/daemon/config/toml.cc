/* The only C++ of the tree: toml++ behind toml.h. No exception leaves it. */
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#define TOML_EXCEPTIONS 1
/* The parser asserts where bad input can lead it (fuzzed: a table name that starts with '{'): that
 * is an error. */
#undef NDEBUG
#define TOML_ASSERT(expr) ((expr) ? (void)0 : throw std::runtime_error("bad input"))
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
#include <toml++/toml.h>

#include "daemon/config/toml.h"

namespace {

using visit_cb = int (*)(const toml_value *, void *);

int visit_table(const toml::table &t, const std::string &prefix, visit_cb cb, void *ud);

bool all_strings(const toml::array &a, std::vector<const char *> &out) {
    for (const auto &e : a) {
        const auto *s = e.as_string();
        if (!s || std::strlen(s->get().c_str()) != s->get().size())
            return false;
        out.push_back(s->get().c_str());
    }
    out.push_back(nullptr);
    return true;
}

int visit_tables(const toml::array &a, const std::string &key, visit_cb cb, void *ud) {
    std::size_t i = 0;
    for (const auto &e : a) {
        int r = visit_table(*e.as_table(), key + "[" + std::to_string(i++) + "]", cb, ud);
        if (r < 0)
            return r;
    }
    return 0;
}

int visit_node(const toml::node &n, const std::string &key, visit_cb cb, void *ud) {
    toml_value v{};
    std::vector<const char *> strings;

    v.key = key.c_str();
    v.line = n.source().begin.line;
    v.column = n.source().begin.column;
    v.type = TOML_OTHER;
    if (const auto *s = n.as_string(); s && std::strlen(s->get().c_str()) == s->get().size()) {
        v.type = TOML_STRING;
        v.str = s->get().c_str();
    } else if (const auto *i = n.as_integer()) {
        v.type = TOML_INT;
        v.num = i->get();
        v.real = static_cast<double>(i->get());
    } else if (const auto *f = n.as_floating_point()) {
        v.type = TOML_FLOAT;
        v.real = f->get();
    } else if (const auto *b = n.as_boolean()) {
        v.type = TOML_BOOL;
        v.num = b->get();
    } else if (const auto *t = n.as_table()) {
        v.type = TOML_TABLE;
        int r = cb(&v, ud);
        return r < 0 ? r : visit_table(*t, key, cb, ud);
    } else if (const auto *a = n.as_array()) {
        if (all_strings(*a, strings)) {
            v.type = TOML_STRINGS;
            v.strings = strings.data();
        } else if (a->is_array_of_tables()) {
            return visit_tables(*a, key, cb, ud);
        }
    }
    return cb(&v, ud);
}

int visit_table(const toml::table &t, const std::string &prefix, visit_cb cb, void *ud) {
    for (const auto &[k, n] : t) {
        int r = visit_node(
            n, prefix.empty() ? std::string(k.str()) : prefix + "." + std::string(k.str()), cb, ud);
        if (r < 0)
            return r;
    }
    return 0;
}

} // namespace

extern "C" int toml_visit(const char *text, size_t len,
                          int (*cb)(const struct toml_value *v, void *ud), void *ud,
                          struct err *err) {
    try {
        toml::table t = toml::parse(std::string_view(text, len));
        return visit_table(t, "", cb, ud);
    } catch (const toml::parse_error &e) {
        const auto at = e.source().begin;
        /* the description may quote what stands there, which may be a secret: only the position is
         * told */
        const bool twice = e.description().find("redefine") != std::string_view::npos;
        return err_set(err, -EINVAL, "line %u, column %u: not valid TOML%s",
                       static_cast<unsigned>(at.line), static_cast<unsigned>(at.column),
                       twice ? ": the key is there already" : "");
    } catch (const std::runtime_error &) {
        return err_set(err, -EINVAL, "not valid TOML");
    } catch (const std::exception &) {
        return err_set(err, -ENOMEM, "out of memory");
    }
}
