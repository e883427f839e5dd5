/*
 * The page that shows the OpenAPI document to people: one file, nothing is loaded from elsewhere.
 * Loop thread.
 */
#include "daemon/api/opensandbox/dialect.h"

/* The document is data: every text goes in as text, never as markup. */
static const char page[] =
    "<!doctype html><html lang=en><head><meta charset=utf-8><title>Cove API</title>"
    "<meta name=viewport content='width=device-width,initial-scale=1'><style>"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1a1a1a;background:#fff}h2{margin-top:2rem;border-bottom:1px solid #ccc}"
    "details{border:1px solid #ddd;border-radius:4px;margin:.4rem 0}"
    "summary{padding:.4rem .6rem;cursor:pointer}code,pre{font:13px/1.4 ui-monospace,monospace}"
    "b{display:inline-block;width:4.5rem;font:bold 12px ui-monospace,monospace}"
    "pre{background:#f6f6f6;margin:0;padding:.6rem;overflow:auto;border-top:1px solid #ddd}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}"
    "pre{background:#222}details,h2,pre{border-color:#444}}</style></head><body>"
    "<h1>Cove API</h1><p id=about>Loading …</p><p>Document: <a href=/openapi.json>"
    "openapi.json</a></p><main></main><script>"
    "function el(p,tag,text){const e=document.createElement(tag);"
    "if(text!==undefined)e.textContent=text;p.append(e);return e}"
    "fetch('/openapi.json').then(r=>r.json()).then(d=>{"
    "document.getElementById('about').textContent=d.info.description;"
    "const main=document.querySelector('main'),tags={};"
    "for(const[path,ops]of Object.entries(d.paths))for(const[verb,op]of Object.entries(ops)){"
    "if(op.operationId.endsWith('_bare'))continue;const t=op.tags[0];"
    "if(!tags[t]){tags[t]=el(main,'section');el(tags[t],'h2',t)}"
    "const box=el(tags[t],'details'),s=el(box,'summary');el(s,'b',verb.toUpperCase());"
    "el(s,'code',path);s.append(' — '+op.summary);"
    "el(box,'pre',JSON.stringify({parameters:op.parameters,requestBody:op.requestBody,"
    "responses:op.responses},null,2))}"
    "const s=el(main,'section');el(s,'h2','Schemas');"
    "for(const[name,v]of Object.entries(d.components.schemas)){const box=el(s,'details');"
    "el(el(box,'summary'),'code',name);el(box,'pre',JSON.stringify(v,null,2))}"
    "}).catch(e=>{document.getElementById('about').textContent='Cannot load the document: '+e});"
    "</script></body></html>\n";

/* Asked for by tools that try to sign in from the page: there is nothing to sign in to. */
static const char redirect[] = "<!doctype html><html lang=en><meta charset=utf-8><title>Cove API"
                               "</title><p>This server has no OAuth. <a href=/docs>The API</a>"
                               "</html>\n";

static void answer(struct xch *x, const char *text, size_t len) {
    x->extra[x->n_extra++] = (struct h1_header){"Content-Security-Policy",
                                                "default-src 'none'; style-src 'unsafe-inline'; "
                                                "script-src 'unsafe-inline'; connect-src 'self'"};
    xch_respond(x, 200, "text/html; charset=utf-8", text, len);
}

void op_docs(struct call *c) {
    answer(c->x, page, sizeof page - 1);
}

void op_docs_redirect(struct call *c) {
    answer(c->x, redirect, sizeof redirect - 1);
}
