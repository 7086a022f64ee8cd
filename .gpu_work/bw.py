import torch, time, triton, sys
from twintrace.frameworks.torch.batches import Entry, launch, triton_for, walk_of
dev=torch.device('cuda'); K=triton_for(dev)
def bench(f): return triton.testing.do_bench(f,warmup=20,rep=60)
for U in (1,2,4):
  K.UNROLL=U; print('unroll',U)
  for d,name in ((torch.bfloat16,'bf16'),(torch.float32,'f32')):
    x=torch.randn((1<<30)//torch.empty(0,dtype=d).element_size(),device=dev,dtype=d)
    for fp in (True,False):
        res=torch.empty((1,16),dtype=torch.int64,device=dev)
        ms=bench(lambda: launch([Entry(x.data_ptr(),x.nbytes,name,None,x,x.untyped_storage(),0,0,0)],res,fp,K))
        print(name,'fp',fp,'GB/s',x.nbytes/1e6/ms,flush=True)
    from twintrace.frameworks.runs import Runs
    q=x[:8*1024*2304].view(8,1024,2304)[:,:,768:1536]; q=q.view(8,1024,12,64).transpose(1,2)
    sz=q.element_size()
    r=Runs.of(q.shape,[sz*s for s in q.stride()],sz); res=torch.empty((64,16),dtype=torch.int64,device=dev)
    es=[Entry(q.data_ptr(),q.nbytes,name,walk_of(r,True,K),q,q.untyped_storage(),0,0,0)]*64
    ms=bench(lambda: launch(es,res,True,K)); print(name,'gathered GB/s',64*q.nbytes/1e6/ms)
ts=[torch.randn(768,device=dev) for _ in range(128)]+[torch.randn(768,device=dev).bfloat16() for _ in range(128)]
es=[Entry(t.data_ptr(),t.nbytes,'f32' if t.dtype is torch.float32 else 'bf16',None,t,t.untyped_storage(),0,0,0) for t in ts]
res=torch.empty((256,16),dtype=torch.int64,device=dev)
for _ in range(3): launch(es,res,True,K)
torch.cuda.synchronize(); t=time.perf_counter()
for _ in range(20): launch(es,res,True,K)
t2=time.perf_counter(); torch.cuda.synchronize(); print('host us per launch of 256 small',(t2-t)/20*1e6,'with device',(time.perf_counter()-t)/20*1e6)
for k,v in list(K.digest.device_caches.values())[0][0].items() if hasattr(K.digest,'device_caches') else []: print(str(k)[:60], getattr(v,'n_regs',None), getattr(v,'n_spills',None))
