/* A CUDA driver for compile checks: it describes one sm_90 device, keeps "device" memory on the host, accepts modules and
 * ignores launches. NVRTC is the real one, so every CubeCL kernel is really compiled to PTX.
 * NOTHING EXECUTES: no value and no time from a run on this driver means anything.
 *
 * STUBCUDA_DUMP=DIR   writes the PTX of every module to DIR/moduleNNN.ptx
 * STUBCUDA_TRACE=1    prints every launch
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int R; typedef unsigned long long P;
static int dump_n=0, launches=0;
R cuInit(unsigned f){return 0;}
R cuDriverGetVersion(int*v){*v=12090;return 0;}
R cuDeviceGetCount(int*n){*n=1;return 0;}
R cuDeviceGet(int*d,int i){*d=0;return i?101:0;}
R cuDeviceGetName(char*n,int l,int d){snprintf(n,l,"stub sm_90");return 0;}
R cuDeviceTotalMem_v2(size_t*b,int d){*b=8ull<<30;return 0;}
R cuDeviceGetAttribute(int*v,int a,int d){
  switch(a){
    case 1:*v=1024;break; case 2:*v=1024;break; case 3:*v=1024;break; case 4:*v=64;break;
    case 5:*v=2147483647;break; case 6:*v=65535;break; case 7:*v=65535;break;
    case 8:*v=49152;break; case 10:*v=32;break; case 16:*v=132;break;
    case 75:*v=9;break; case 76:*v=0;break; case 97:*v=232448;break;
    default:*v=1;
  } return 0;}
R cuDevicePrimaryCtxRetain(void**c,int d){*c=(void*)0x1000;return 0;}
R cuDevicePrimaryCtxRelease_v2(int d){return 0;}
R cuCtxSetCurrent(void*c){return 0;}
R cuCtxGetCurrent(void**c){*c=(void*)0x1000;return 0;}
R cuCtxSynchronize(void){return 0;}
R cuStreamCreate(void**s,unsigned f){*s=malloc(8);return 0;}
R cuStreamCreateWithPriority(void**s,unsigned f,int p){*s=malloc(8);return 0;}
R cuStreamSynchronize(void*s){return 0;}
R cuStreamQuery(void*s){return 0;}
R cuStreamDestroy_v2(void*s){return 0;}
R cuStreamWaitEvent(void*s,void*e,unsigned f){return 0;}
R cuEventCreate(void**e,unsigned f){*e=malloc(8);return 0;}
R cuEventRecord(void*e,void*s){return 0;}
R cuEventSynchronize(void*e){return 0;}
R cuEventQuery(void*e){return 0;}
R cuEventElapsedTime_v2(float*ms,void*a,void*b){*ms=0;return 0;}
R cuEventElapsedTime(float*ms,void*a,void*b){*ms=0;return 0;}
R cuEventDestroy_v2(void*e){free(e);return 0;}
R cuMemAlloc_v2(P*p,size_t n){*p=(P)aligned_alloc(512,(n+511)&~511ull);return *p?0:2;}
R cuMemAllocAsync(P*p,size_t n,void*s){return cuMemAlloc_v2(p,n);}
R cuMemFree_v2(P p){free((void*)p);return 0;}
R cuMemFreeAsync(P p,void*s){free((void*)p);return 0;}
R cuMemAllocHost_v2(void**p,size_t n){*p=aligned_alloc(512,(n+511)&~511ull);return 0;}
R cuMemFreeHost(void*p){free(p);return 0;}
R cuMemcpyHtoDAsync_v2(P d,const void*s,size_t n,void*st){memcpy((void*)d,s,n);return 0;}
R cuMemcpyDtoHAsync_v2(void*d,P s,size_t n,void*st){memcpy(d,(void*)s,n);return 0;}
R cuMemcpyHtoD_v2(P d,const void*s,size_t n){memcpy((void*)d,s,n);return 0;}
R cuMemcpyDtoH_v2(void*d,P s,size_t n){memcpy(d,(void*)s,n);return 0;}
R cuMemcpyDtoDAsync_v2(P d,P s,size_t n,void*st){memmove((void*)d,(void*)s,n);return 0;}
typedef struct{size_t sx,sy;unsigned st;const void*sh;P sd;void*sa;size_t sp;size_t dx,dy;unsigned dt;void*dh;P dd;void*da;size_t dp;size_t w,h;}C2;
R cuMemcpy2DAsync_v2(const C2*c,void*st){
  const char*s=c->st==1?(const char*)c->sh:(const char*)c->sd; char*d=c->dt==1?(char*)c->dh:(char*)c->dd;
  for(size_t i=0;i<c->h;i++)memcpy(d+(c->dy+i)*c->dp+c->dx,s+(c->sy+i)*c->sp+c->sx,c->w);return 0;}
R cuModuleLoadData(void**m,const void*img){
  const char*dir=getenv("STUBCUDA_DUMP");
  if(dir){char p[512];snprintf(p,512,"%s/module%03d.ptx",dir,dump_n++);FILE*f=fopen(p,"w");if(!f){perror(p);return 1;}fputs(img,f);fclose(f);}
  *m=malloc(8);return 0;}
R cuModuleUnload(void*m){return 0;}
R cuModuleGetFunction(void**f,void*m,const char*n){*f=strdup(n);return 0;}
R cuFuncSetAttribute(void*f,int a,int v){return 0;}
R cuLaunchKernel(void*f,unsigned gx,unsigned gy,unsigned gz,unsigned bx,unsigned by,unsigned bz,unsigned sh,void*st,void**a,void**x){
  launches++; if(getenv("STUBCUDA_TRACE"))fprintf(stderr,"[stub driver] %s grid %u,%u,%u block %u,%u,%u smem %u\n",(char*)f,gx,gy,gz,bx,by,bz,sh);return 0;}
R cuLaunchKernelEx(void*cfg,void*f,void**a,void**x){launches++;return 0;}
R cuTensorMapEncodeTiled(void*t){memset(t,0,128);return 0;}
R cuGetErrorName(int e,const char**s){*s="STUB";return 0;}
R cuGetErrorString(int e,const char**s){*s="stub error";return 0;}
