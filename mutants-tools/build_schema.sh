#!/bin/bash
# Prepares /work/mutants-tmp/s with all viable mutants inside.
S=/work/mutants-tmp/s; B=/work/mutants-tmp/schema/target/release/schema
touch /work/mutants-out/dropped.txt
for n in $(seq 1 12); do
  rm -rf $S.src; mkdir -p $S.src; git -C /work/mutants archive ${REV:-HEAD} | tar x -C $S.src
  git -C /work/mutants show 2654409:gpu/src/heap/mod.rs > $S.src/gpu/src/heap/mod.rs; printf "\n#[cfg(all(test, not(loom)))]\nmod cursor_tests;\n" >> $S.src/gpu/src/heap/mod.rs
  cat >> $S.src/gpu/src/lib.rs <<'R'

#[doc(hidden)]
#[cfg(not(target_arch = "nvptx64"))]
pub const fn mutant_id() -> u32 {
    const fn at_const() -> u32 { 0 }
    fn at_run() -> u32 { unsafe { MUTANT } }
    core::intrinsics::const_eval_select((), at_const, at_run)
}
static mut MUTANT: u32 = 0;
extern "C" fn read_mutant() {
    unsafe { MUTANT = std::env::var("MUTANT").ok().and_then(|v| v.parse().ok()).unwrap_or(0) }
}
#[used]
#[unsafe(link_section = ".init_array")]
static READ_MUTANT: extern "C" fn() = read_mutant;
R
  sed -i 's/^#!\[no_std\]/#![no_std]\n#![allow(internal_features)]\n#![feature(core_intrinsics, const_eval_select)]/' $S.src/gpu/src/lib.rs
  $B ${LIST:-/work/mutants-out/list.json} $S.src /work/mutants-out/dropped.txt > /work/mutants-out/map.txt || exit 1
  mkdir -p $S; rsync -rc --delete --exclude target $S.src/ $S/ 2>/dev/null || { find $S -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} +; cp -r $S.src/. $S/; }
  cd $S
  RUSTC_BOOTSTRAP=1 RUSTFLAGS="--cap-lints warn" DOCS_RS=1 CARGO_PROFILE_DEV_OPT_LEVEL=${OPT:-1} nice -n 5 cargo check -p warpheap-device --lib --tests --locked --message-format json 2>/dev/null > /work/mutants-out/check.json
  python3 - <<'P'
import json,sys
m={}
for l in open('/work/mutants-out/map.txt'):
    p=l.split()
    if p[0]=='at': m[(p[2],int(p[3]))]=p[1]
bad=set(); other=[]
n=0
for l in open('/work/mutants-out/check.json'):
    d=json.loads(l)
    if d.get('reason')!='compiler-message' or d['message']['level']!='error': continue
    n+=1
    hit=False
    for s in d['message']['spans']:
        if not s['is_primary']: continue
        k=(s['file_name'],s['line_start'])
        if k in m: bad.add(m[k]); hit=True
    if not hit: other.append(d['message']['rendered'])
print('errors',n,'bad',len(bad),'other',len(other)); print(''.join(other[:6]))
open('/work/mutants-out/dropped.txt','a').write('\n'.join(bad)+('\n' if bad else ''))
open('/work/mutants-tmp/round','w').write(str(n))
P
  [ "$(cat /work/mutants-tmp/round)" = 0 ] && break
done
