declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, <64 x i8>, <64 x i8>)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @autotune_parallel_for(ptr, ptr, i64, i32)

define void @kernel(ptr %arguments, i32 %threads, ptr %workspace) nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "target-cpu"="skylake-avx512" {
entry:
  %argument.at0 = getelementptr ptr, ptr %arguments, i64 0
  %argument0 = load ptr, ptr %argument.at0
  %argument.at1 = getelementptr ptr, ptr %arguments, i64 1
  %argument1 = load ptr, ptr %argument.at1
  %argument.at2 = getelementptr ptr, ptr %arguments, i64 2
  %argument2 = load ptr, ptr %argument.at2
  %context.1.0 = alloca [2 x i64], align 16
  store ptr %arguments, ptr %context.1.0
  %v1 = getelementptr i64, ptr %context.1.0, i64 1
  store ptr %workspace, ptr %v1
  call void @autotune_parallel_for(ptr @kernel.parallel0, ptr %context.1.0, i64 4, i32 %threads)
  ret void
}
define internal void @kernel.parallel0(ptr %context, i32 %thread, i64 %low, i64 %high) nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "target-cpu"="skylake-avx512" {
entry:
  %arguments = load ptr, ptr %context
  %workspace.at = getelementptr ptr, ptr %context, i64 1
  %workspace = load ptr, ptr %workspace.at
  %thread64 = sext i32 %thread to i64
  %scratch.offset = mul i64 %thread64, 0
  %scratch.start = add i64 %scratch.offset, 0
  %scratch = getelementptr i8, ptr %workspace, i64 %scratch.start
  %any = icmp ult i64 %low, %high
  %argument.at0 = getelementptr ptr, ptr %arguments, i64 0
  %argument0 = load ptr, ptr %argument.at0
  %argument.at1 = getelementptr ptr, ptr %arguments, i64 1
  %argument1 = load ptr, ptr %argument.at1
  %argument.at2 = getelementptr ptr, ptr %arguments, i64 2
  %argument2 = load ptr, ptr %argument.at2
  br i1 %any, label %loop1, label %after2
loop1:
  %i1 = phi i64 [ %low, %entry ], [ %i1.next, %latch3 ]
  %v5 = udiv i64 %i1, 2
  %v6 = mul nsw i64 %v5, 16
  %v7 = getelementptr i8, ptr %argument0, i64 %v6
  %v13 = urem i64 %i1, 2
  %v14 = mul nsw i64 %v13, 128
  %v15 = getelementptr i8, ptr %argument1, i64 %v14
  %v26 = mul nsw i64 %v13, 16
  %v27 = mul nsw i64 %v5, 64
  %v28 = add nsw i64 %v26, %v27
  %v29 = getelementptr i32, ptr %argument2, i64 %v28
  br label %loop4
loop4:
  %p8 = phi ptr [ %v7, %loop1 ], [ %p8.next, %latch6 ]
  %p16 = phi ptr [ %v15, %loop1 ], [ %p16.next, %latch6 ]
  %i2 = phi i64 [ 0, %loop1 ], [ %i2.next, %latch6 ]
  %acc3 = phi <16 x i32> [ splat (i32 0), %loop1 ], [ %v19, %latch6 ]
  %acc4 = phi <16 x i32> [ splat (i32 0), %loop1 ], [ %v25, %latch6 ]
  %v9 = load i32, ptr %p8, align 1
  %v10 = insertelement <16 x i32> poison, i32 %v9, i32 0
  %v11 = shufflevector <16 x i32> %v10, <16 x i32> poison, <16 x i32> zeroinitializer
  %v12 = bitcast <16 x i32> %v11 to <64 x i8>
  %v17 = load <16 x i32>, ptr %p16, align 1
  %v18 = bitcast <16 x i32> %v17 to <64 x i8>
  %v19 = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %acc3, <64 x i8> %v12, <64 x i8> %v18)
  %v20 = getelementptr i8, ptr %p8, i64 8
  %v21 = load i32, ptr %v20, align 1
  %v22 = insertelement <16 x i32> poison, i32 %v21, i32 0
  %v23 = shufflevector <16 x i32> %v22, <16 x i32> poison, <16 x i32> zeroinitializer
  %v24 = bitcast <16 x i32> %v23 to <64 x i8>
  %v25 = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %acc4, <64 x i8> %v24, <64 x i8> %v18)
  br label %latch6
latch6:
  %p8.next = getelementptr i8, ptr %p8, i64 4
  %p16.next = getelementptr i8, ptr %p16, i64 64
  %i2.next = add nuw nsw i64 %i2, 1
  %i2.more = icmp slt i64 %i2.next, 2
  br i1 %i2.more, label %loop4, label %after5
after5:
  store <16 x i32> %v19, ptr %v29, align 4
  %v30 = getelementptr i32, ptr %v29, i64 32
  store <16 x i32> %v25, ptr %v30, align 4
  br label %latch3
latch3:
  %i1.next = add nuw nsw i64 %i1, 1
  %i1.more = icmp slt i64 %i1.next, %high
  br i1 %i1.more, label %loop1, label %after2
after2:
  ret void
}
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @autotune_parallel_for(ptr, ptr, i64, i32)

define void @pack0(ptr %arguments, i32 %threads, ptr %workspace) nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "target-cpu"="skylake-avx512" {
entry:
  %argument.at0 = getelementptr ptr, ptr %arguments, i64 0
  %argument0 = load ptr, ptr %argument.at0
  %argument.at1 = getelementptr ptr, ptr %arguments, i64 1
  %argument1 = load ptr, ptr %argument.at1
  br label %loop1
loop1:
  %p5 = phi ptr [ %argument0, %entry ], [ %p5.next, %latch3 ]
  %p10 = phi ptr [ %argument1, %entry ], [ %p10.next, %latch3 ]
  %i1 = phi i64 [ 0, %entry ], [ %i1.next, %latch3 ]
  br label %loop4
loop4:
  %p6 = phi ptr [ %p5, %loop1 ], [ %p6.next, %latch6 ]
  %p11 = phi ptr [ %p10, %loop1 ], [ %p11.next, %latch6 ]
  %i2 = phi i64 [ 0, %loop1 ], [ %i2.next, %latch6 ]
  br label %loop7
loop7:
  %p7 = phi ptr [ %p6, %loop4 ], [ %p7.next, %latch9 ]
  %p12 = phi ptr [ %p11, %loop4 ], [ %p12.next, %latch9 ]
  %i3 = phi i64 [ 0, %loop4 ], [ %i3.next, %latch9 ]
  br label %loop10
loop10:
  %p8 = phi ptr [ %p7, %loop7 ], [ %p8.next, %latch12 ]
  %p13 = phi ptr [ %p12, %loop7 ], [ %p13.next, %latch12 ]
  %i4 = phi i64 [ 0, %loop7 ], [ %i4.next, %latch12 ]
  %v9 = load i8, ptr %p8, align 1
  store i8 %v9, ptr %p13, align 1
  br label %latch12
latch12:
  %p8.next = getelementptr i8, ptr %p8, i64 32
  %p13.next = getelementptr i8, ptr %p13, i64 1
  %i4.next = add nuw nsw i64 %i4, 1
  %i4.more = icmp slt i64 %i4.next, 4
  br i1 %i4.more, label %loop10, label %after11
after11:
  br label %latch9
latch9:
  %p7.next = getelementptr i8, ptr %p7, i64 1
  %p12.next = getelementptr i8, ptr %p12, i64 4
  %i3.next = add nuw nsw i64 %i3, 1
  %i3.more = icmp slt i64 %i3.next, 16
  br i1 %i3.more, label %loop7, label %after8
after8:
  br label %latch6
latch6:
  %p6.next = getelementptr i8, ptr %p6, i64 128
  %p11.next = getelementptr i8, ptr %p11, i64 64
  %i2.next = add nuw nsw i64 %i2, 1
  %i2.more = icmp slt i64 %i2.next, 2
  br i1 %i2.more, label %loop4, label %after5
after5:
  br label %latch3
latch3:
  %p5.next = getelementptr i8, ptr %p5, i64 16
  %p10.next = getelementptr i8, ptr %p10, i64 128
  %i1.next = add nuw nsw i64 %i1, 1
  %i1.more = icmp slt i64 %i1.next, 2
  br i1 %i1.more, label %loop1, label %after2
after2:
  ret void
}
