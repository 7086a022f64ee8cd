import sys; pass
import numpy as np, torch, time
from twintrace.frameworks.torch.batches import Entry, launch, triton_for, walk_of
from twintrace.frameworks.torch.tensors import NAMES
from twintrace.frameworks.runs import Runs
from twintrace.store.device_sums import finish
from twintrace.store.digest import digest
from twintrace.frameworks.torch.tensors import host
dev=torch.device(sys.argv[1] if len(sys.argv)>1 else 'cpu'); which=sys.argv[2] if len(sys.argv)>2 else 'both'
K=triton_for(dev); print('triton', K)
torch.manual_seed(0)
def raw(n): return torch.randint(0,256,(n,),dtype=torch.uint8)
def entry(t,i,kern):
    walk=None
    size=t.element_size()
    if not t.is_contiguous() or t.data_ptr()%8:
        runs=Runs.of(t.shape,[size*s for s in t.stride()],size)
        walk = walk_of(runs, t.data_ptr()%8==0, kern) if kern else None
        if walk is None: t=t.contiguous(); t=t.clone() if t.data_ptr()%8 else t
    return Entry(t.data_ptr(),t.numel()*size,NAMES[t.dtype],walk,t,0,0,i)
def cases():
    for d in NAMES:
        if d.is_floating_point or d.is_complex or d in (torch.int8,torch.int16,torch.int32,torch.int64,torch.uint8,torch.bool,torch.uint16,torch.uint32,torch.uint64):
            if d in (torch.quint8,torch.qint8,torch.qint32): continue
            sz=torch.empty(0,dtype=d).element_size()
            for n in (1,3,7,129,1000,70001) if dev.type!='cpu' else (1,3,129,1000,9001):
                b=raw(n*sz)
                if d is torch.bool: b=b&1
                t=b.to(dev).view(d)
                yield f'{d} raw {n}', t
                if n>=1000 and sz<=16:
                    yield f'{d} strided {n}', t[:1000-(1000%40)].view(-1,40)[:, 3:9]
                    if sz<8: yield f'{d} offset {n}', t[1:]
                    yield f'{d} transposed {n}', t[:960].view(8,15,8).transpose(0,2)
                    yield f'{d} expanded {n}', t[:24].view(24,1).expand(24,17)
                    yield f'{d} 64of128 {n}', t[:896].view(7,128)[:, 64:]
            if d.is_floating_point and sz>=2:
                yield f'{d} normal', torch.randn(3000).to(d).to(dev)
                yield f'{d} tiny', (torch.randn(3000).double()*1e-300).to(d).to(dev)
                yield f'{d} huge', (torch.randn(3000).double()*1e300).to(d).to(dev)
                yield f'{d} negzero', torch.tensor([-0.0,-1.0]).to(d).to(dev)
            if d is torch.complex128:
                yield 'c128 huge', (torch.randn(300,dtype=d)*1e300).to(dev)
                yield 'c128 tiny', (torch.randn(300,dtype=d)*1e-300).to(dev)
bad=0; batch=[]
def check(batch,kern,name):
    global bad
    es=[entry(t,i,kern) for i,(n,t) in enumerate(batch)]
    res=torch.empty((len(es),16),dtype=torch.int64,device=dev)
    launch(es,res,True,kern)
    rows=res.cpu().numpy()
    got=finish(rows,[e.dtype for e in es],[e.nbytes for e in es],True)
    for (n,t),g in zip(batch,got):
        w=digest(host(t),NAMES[t.dtype]); s=w.statistics
        exact=(s.min,s.max,s.nan,s.posinf,s.neginf,s.zero,w.fingerprint)
        mine=(g[0],g[1],g[4],g[5],g[6],g[7],g[8])
        def near(a,b,scale): return a is b or a==b or (a is not None and b is not None and abs(a-b)<=4e-15*max(scale,abs(a)))
        ok=exact==mine and near(s.norm,g[3],0) and near(s.mean,g[2],(s.norm or 0)/max(1,t.numel())**.5)
        if not ok: bad+=1; print(name,'BAD',n,exact,s.mean,s.norm,g)
allc=list(cases())
for i in range(0,len(allc),200):
    for kern,name in ((K,'triton'),(None,'plain')):
        if which in ('both',name) and (kern is not None or name=='plain'): check(allc[i:i+200],kern,name)
print('cases',len(allc),'bad',bad)
