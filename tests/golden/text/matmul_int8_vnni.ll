declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, <64 x i8>, <64 x i8>)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @autotune_parallel_for(ptr, ptr, i32)

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
  call void @autotune_parallel_for(ptr @kernel.parallel0, ptr %context.1.0, i32 %threads)
  ret void
}
define internal void @kernel.parallel0(ptr %context, i32 %thread, i32 %threads) nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "target-cpu"="skylake-avx512" {
entry:
  %arguments = load ptr, ptr %context
  %workspace.at = getelementptr ptr, ptr %context, i64 1
  %workspace = load ptr, ptr %workspace.at
  %thread64 = sext i32 %thread to i64
  %threads64 = sext i32 %threads to i64
  %scratch.offset = mul i64 %thread64, 0
  %scratch.start = add i64 %scratch.offset, 0
  %scratch = getelementptr i8, ptr %workspace, i64 %scratch.start
  %low.scaled = mul i64 %thread64, 4
  %low = udiv i64 %low.scaled, %threads64
  %next = add i64 %thread64, 1
  %high.scaled = mul i64 %next, 4
  %high = udiv i64 %high.scaled, %threads64
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
  %v14 = urem i64 %i1, 2
  %v15 = mul nsw i64 %v14, 128
  %v16 = getelementptr i8, ptr %argument1, i64 %v15
  %v30 = mul nsw i64 %v14, 16
  %v31 = mul nsw i64 %v5, 64
  %v32 = add nsw i64 %v30, %v31
  %v33 = getelementptr i32, ptr %argument2, i64 %v32
  br label %loop4
loop4:
  %i2 = phi i64 [ 0, %loop1 ], [ %i2.next, %latch6 ]
  %acc3 = phi <16 x i32> [ splat (i32 0), %loop1 ], [ %v21, %latch6 ]
  %acc4 = phi <16 x i32> [ splat (i32 0), %loop1 ], [ %v29, %latch6 ]
  %v8 = mul nsw i64 %i2, 4
  %v9 = getelementptr i8, ptr %v7, i64 %v8
  %v17 = mul nsw i64 %i2, 64
  %v18 = getelementptr i8, ptr %v16, i64 %v17
  %v10 = load i32, ptr %v9, align 1
  %v11 = insertelement <16 x i32> poison, i32 %v10, i32 0
  %v12 = shufflevector <16 x i32> %v11, <16 x i32> poison, <16 x i32> zeroinitializer
  %v13 = bitcast <16 x i32> %v12 to <64 x i8>
  %v19 = load <16 x i32>, ptr %v18, align 1
  %v20 = bitcast <16 x i32> %v19 to <64 x i8>
  %v21 = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %acc3, <64 x i8> %v13, <64 x i8> %v20)
  call void asm sideeffect "", "~{memory}"()
  %v22 = getelementptr i8, ptr %v9, i64 8
  %v23 = load i32, ptr %v22, align 1
  %v24 = insertelement <16 x i32> poison, i32 %v23, i32 0
  %v25 = shufflevector <16 x i32> %v24, <16 x i32> poison, <16 x i32> zeroinitializer
  %v26 = bitcast <16 x i32> %v25 to <64 x i8>
  %v27 = load <16 x i32>, ptr %v18, align 1
  %v28 = bitcast <16 x i32> %v27 to <64 x i8>
  %v29 = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %acc4, <64 x i8> %v26, <64 x i8> %v28)
  br label %latch6
latch6:
  %i2.next = add nuw nsw i64 %i2, 1
  %i2.more = icmp slt i64 %i2.next, 2
  br i1 %i2.more, label %loop4, label %after5
after5:
  store <16 x i32> %v21, ptr %v33, align 4
  %v34 = getelementptr i32, ptr %v33, i64 32
  store <16 x i32> %v29, ptr %v34, align 4
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
declare void @autotune_parallel_for(ptr, ptr, i32)

define void @pack0(ptr %arguments, i32 %threads, ptr %workspace) nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "target-cpu"="skylake-avx512" {
entry:
  %argument.at0 = getelementptr ptr, ptr %arguments, i64 0
  %argument0 = load ptr, ptr %argument.at0
  %argument.at1 = getelementptr ptr, ptr %arguments, i64 1
  %argument1 = load ptr, ptr %argument.at1
  br label %loop1
loop1:
  %i1 = phi i64 [ 0, %entry ], [ %i1.next, %latch3 ]
  %v5 = mul nsw i64 %i1, 16
  %v6 = getelementptr i8, ptr %argument0, i64 %v5
  %v13 = mul nsw i64 %i1, 128
  %v14 = getelementptr i8, ptr %argument1, i64 %v13
  br label %loop4
loop4:
  %i2 = phi i64 [ 0, %loop1 ], [ %i2.next, %latch6 ]
  %v7 = mul nsw i64 %i2, 128
  %v8 = getelementptr i8, ptr %v6, i64 %v7
  %v15 = mul nsw i64 %i2, 64
  %v16 = getelementptr i8, ptr %v14, i64 %v15
  br label %loop7
loop7:
  %i3 = phi i64 [ 0, %loop4 ], [ %i3.next, %latch9 ]
  %v9 = getelementptr i8, ptr %v8, i64 %i3
  %v17 = mul nsw i64 %i3, 4
  %v18 = getelementptr i8, ptr %v16, i64 %v17
  br label %loop10
loop10:
  %i4 = phi i64 [ 0, %loop7 ], [ %i4.next, %latch12 ]
  %v10 = mul nsw i64 %i4, 32
  %v11 = getelementptr i8, ptr %v9, i64 %v10
  %v19 = getelementptr i8, ptr %v18, i64 %i4
  %v12 = load i8, ptr %v11, align 1
  store i8 %v12, ptr %v19, align 1
  br label %latch12
latch12:
  %i4.next = add nuw nsw i64 %i4, 1
  %i4.more = icmp slt i64 %i4.next, 4
  br i1 %i4.more, label %loop10, label %after11
after11:
  br label %latch9
latch9:
  %i3.next = add nuw nsw i64 %i3, 1
  %i3.more = icmp slt i64 %i3.next, 16
  br i1 %i3.more, label %loop7, label %after8
after8:
  br label %latch6
latch6:
  %i2.next = add nuw nsw i64 %i2, 1
  %i2.more = icmp slt i64 %i2.next, 2
  br i1 %i2.more, label %loop4, label %after5
after5:
  br label %latch3
latch3:
  %i1.next = add nuw nsw i64 %i1, 1
  %i1.more = icmp slt i64 %i1.next, 2
  br i1 %i1.more, label %loop1, label %after2
after2:
  ret void
}
