"""runs.py STAGE WORKERS: tests mutants with prebuilt programs; appends to stageN.jsonl."""
import json,sys,os,subprocess,resource,time,glob,threading,queue,signal
stage=sys.argv[1]; workers=int(sys.argv[2])
L=json.load(open('/work/mutants-out/list.json'))
viable=sorted({int(l.split()[1]) for l in open('/work/mutants-out/map.txt') if l.startswith('at')})
S='/work/mutants-tmp/s'
def exe(name, d): 
    c=[p for p in glob.glob(f'{d}/{name}-*') if os.access(p,os.X_OK) and not p.endswith(('.d','.so'))]
    return max(c,key=os.path.getmtime)
conf=json.load(open(f'/work/mutants-out/stage{stage}.json'))
outf=f'/work/mutants-out/stage{stage}.jsonl'
done=set()
if os.path.exists(outf): done={json.loads(l)['id'] for l in open(outf)}
if conf.get('of'):
    prev={}
    for s in conf['of']:
        for l in open(f'/work/mutants-out/stage{s}.jsonl'):
            d=json.loads(l); prev[d['id']]=d['result']
    import surv; viable=[i for i in viable if i in prev and surv.status(i).startswith('missed')]
env=dict(os.environ,PROPTEST_CASES='24',PROPTEST_MAX_SHRINK_ITERS='0',PROPTEST_DISABLE_FAILURE_PERSISTENCE='1',PROPTEST_RNG_SEED='7',RUSTC_BOOTSTRAP='1',RUST_BACKTRACE='0')
env.update(conf.get('env',{}))
def lim(): 
    resource.setrlimit(resource.RLIMIT_AS,(6<<30,6<<30)); resource.setrlimit(resource.RLIMIT_CORE,(0,0)); c=conf.get('cpu'); c and resource.setrlimit(resource.RLIMIT_CPU,(c,c)); os.nice(10)
def tests(f):
    for t in conf['tests']:
        if f.startswith(tuple(t['files'])): return t['run']
    return []
q=queue.Queue()
for i in viable:
    if i not in done and tests(L[i-1]['file']): q.put(i)
print(q.qsize(),flush=True); lock=threading.Lock(); out=open(outf,'a')
def one(i):
    r={'id':i,'name':L[i-1]['name'],'result':'missed'}
    t0=time.time()
    for name,d,cwd,args in tests(L[i-1]['file']):
        p=subprocess.Popen([exe(name,d),'-q','-Z','unstable-options','--fail-fast']+args,cwd=cwd,env=dict(env,MUTANT=str(i)),stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL,preexec_fn=lim,start_new_session=True)
        try: rc=p.wait(conf['timeout'])
        except subprocess.TimeoutExpired:
            os.killpg(p.pid,signal.SIGKILL); p.wait(); r['result']='timeout'; r['by']=name; break
        if rc in (-9,-24) and conf.get('cpu'): r['result']='timeout'; r['by']=name; break
        if rc!=0: r['result']='caught'; r['by']=name; r['rc']=rc; break
    r['t']=round(time.time()-t0,2)
    with lock: out.write(json.dumps(r)+'\n'); out.flush()
def work():
    while True:
        try: i=q.get_nowait()
        except queue.Empty: return
        one(i)
ts=[threading.Thread(target=work) for _ in range(workers)]
[t.start() for t in ts]; [t.join() for t in ts]
