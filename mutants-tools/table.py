import json,collections,surv
L=json.load(open('list.json'))
dropped={int(x) for x in open('dropped.txt').read().split()}
skip={int(l.split()[1]):l.split()[2] for l in open('map.txt') if l.startswith('skip')}
surv.st={n:surv.load(n) for n in (1,2,3,4,5,6,7,8)}
ids=set().union(*[set(s) for s in surv.st.values()])
c=collections.defaultdict(collections.Counter)
for i,m in enumerate(L,1):
    f=m['file'].replace('gpu/src/','')
    if 'tests' in (m['function'] or {}).get('function_name',''): s='testcode'
    elif 'steps.rs' in f: s='steps'
    elif i in dropped or skip.get(i)=='unviable-parse': s='unviable'
    elif i in ids: s=surv.status(i)
    else: s='notrun'
    if s=='missed' and (i in surv.st[2]) is False: s='missed1'
    c[f][s]+=1
t=collections.Counter()
cols=['caught','timeout','unviable','missed','missed1','notrun','testcode','steps']
print('file',cols)
for f in sorted(c): print(f, [c[f][k] for k in cols]); t.update(c[f])
print([ (k,t[k]) for k in cols])
