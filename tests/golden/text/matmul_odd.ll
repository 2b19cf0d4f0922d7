declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @autotune_parallel_for(ptr, ptr, i32)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, <16 x i1>)

define void @kernel(ptr %arguments, i32 %threads, ptr %workspace) nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "target-cpu"="skylake-avx512" {
entry:
  %argument.at0 = getelementptr ptr, ptr %arguments, i64 0
  %argument0 = load ptr, ptr %argument.at0
  %argument.at1 = getelementptr ptr, ptr %arguments, i64 1
  %argument1 = load ptr, ptr %argument.at1
  %argument.at2 = getelementptr ptr, ptr %arguments, i64 2
  %argument2 = load ptr, ptr %argument.at2
  br label %loop1
loop1:
  %i1 = phi i64 [ 0, %entry ], [ %i1.next, %latch3 ]
  %v3 = mul nsw i64 %i1, 2
  %v4 = call i64 @llvm.smin.i64(i64 %v3, i64 3)
  %v5 = mul nsw i64 %v4, 7
  %v6 = getelementptr float, ptr %argument0, i64 %v5
  %v97 = mul nsw i64 %v4, 33
  %v98 = getelementptr float, ptr %argument2, i64 %v97
  br label %loop4
loop4:
  %i2 = phi i64 [ 0, %loop1 ], [ %i2.next, %latch6 ]
  %v8 = mul nsw i64 %i2, 112
  %v9 = getelementptr float, ptr %argument1, i64 %v8
  %v91 = mul nsw i64 %i2, 16
  %v99 = mul nsw i64 %i2, 16
  %v100 = getelementptr float, ptr %v98, i64 %v99
  %v7 = load float, ptr %v6, align 4
  %v10 = load <16 x float>, ptr %v9, align 4
  %v11 = insertelement <16 x float> poison, float %v7, i32 0
  %v12 = shufflevector <16 x float> %v11, <16 x float> poison, <16 x i32> zeroinitializer
  %v13 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v12, <16 x float> %v10, <16 x float> splat (float 0x0000000000000000))
  %v14 = getelementptr float, ptr %v6, i64 7
  %v15 = load float, ptr %v14, align 4
  %v16 = insertelement <16 x float> poison, float %v15, i32 0
  %v17 = shufflevector <16 x float> %v16, <16 x float> poison, <16 x i32> zeroinitializer
  %v18 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v17, <16 x float> %v10, <16 x float> splat (float 0x0000000000000000))
  call void asm sideeffect "", "~{memory}"()
  %v19 = getelementptr float, ptr %v6, i64 1
  %v20 = load float, ptr %v19, align 4
  %v21 = getelementptr float, ptr %v9, i64 16
  %v22 = load <16 x float>, ptr %v21, align 4
  %v23 = insertelement <16 x float> poison, float %v20, i32 0
  %v24 = shufflevector <16 x float> %v23, <16 x float> poison, <16 x i32> zeroinitializer
  %v25 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v24, <16 x float> %v22, <16 x float> %v13)
  %v26 = getelementptr float, ptr %v6, i64 8
  %v27 = load float, ptr %v26, align 4
  %v28 = insertelement <16 x float> poison, float %v27, i32 0
  %v29 = shufflevector <16 x float> %v28, <16 x float> poison, <16 x i32> zeroinitializer
  %v30 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v29, <16 x float> %v22, <16 x float> %v18)
  call void asm sideeffect "", "~{memory}"()
  %v31 = getelementptr float, ptr %v6, i64 2
  %v32 = load float, ptr %v31, align 4
  %v33 = getelementptr float, ptr %v9, i64 32
  %v34 = load <16 x float>, ptr %v33, align 4
  %v35 = insertelement <16 x float> poison, float %v32, i32 0
  %v36 = shufflevector <16 x float> %v35, <16 x float> poison, <16 x i32> zeroinitializer
  %v37 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v36, <16 x float> %v34, <16 x float> %v25)
  %v38 = getelementptr float, ptr %v6, i64 9
  %v39 = load float, ptr %v38, align 4
  %v40 = insertelement <16 x float> poison, float %v39, i32 0
  %v41 = shufflevector <16 x float> %v40, <16 x float> poison, <16 x i32> zeroinitializer
  %v42 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v41, <16 x float> %v34, <16 x float> %v30)
  call void asm sideeffect "", "~{memory}"()
  %v43 = getelementptr float, ptr %v6, i64 3
  %v44 = load float, ptr %v43, align 4
  %v45 = getelementptr float, ptr %v9, i64 48
  %v46 = load <16 x float>, ptr %v45, align 4
  %v47 = insertelement <16 x float> poison, float %v44, i32 0
  %v48 = shufflevector <16 x float> %v47, <16 x float> poison, <16 x i32> zeroinitializer
  %v49 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v48, <16 x float> %v46, <16 x float> %v37)
  %v50 = getelementptr float, ptr %v6, i64 10
  %v51 = load float, ptr %v50, align 4
  %v52 = insertelement <16 x float> poison, float %v51, i32 0
  %v53 = shufflevector <16 x float> %v52, <16 x float> poison, <16 x i32> zeroinitializer
  %v54 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v53, <16 x float> %v46, <16 x float> %v42)
  call void asm sideeffect "", "~{memory}"()
  %v55 = getelementptr float, ptr %v6, i64 4
  %v56 = load float, ptr %v55, align 4
  %v57 = getelementptr float, ptr %v9, i64 64
  %v58 = load <16 x float>, ptr %v57, align 4
  %v59 = insertelement <16 x float> poison, float %v56, i32 0
  %v60 = shufflevector <16 x float> %v59, <16 x float> poison, <16 x i32> zeroinitializer
  %v61 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v60, <16 x float> %v58, <16 x float> %v49)
  %v62 = getelementptr float, ptr %v6, i64 11
  %v63 = load float, ptr %v62, align 4
  %v64 = insertelement <16 x float> poison, float %v63, i32 0
  %v65 = shufflevector <16 x float> %v64, <16 x float> poison, <16 x i32> zeroinitializer
  %v66 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v65, <16 x float> %v58, <16 x float> %v54)
  call void asm sideeffect "", "~{memory}"()
  %v67 = getelementptr float, ptr %v6, i64 5
  %v68 = load float, ptr %v67, align 4
  %v69 = getelementptr float, ptr %v9, i64 80
  %v70 = load <16 x float>, ptr %v69, align 4
  %v71 = insertelement <16 x float> poison, float %v68, i32 0
  %v72 = shufflevector <16 x float> %v71, <16 x float> poison, <16 x i32> zeroinitializer
  %v73 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v72, <16 x float> %v70, <16 x float> %v61)
  %v74 = getelementptr float, ptr %v6, i64 12
  %v75 = load float, ptr %v74, align 4
  %v76 = insertelement <16 x float> poison, float %v75, i32 0
  %v77 = shufflevector <16 x float> %v76, <16 x float> poison, <16 x i32> zeroinitializer
  %v78 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v77, <16 x float> %v70, <16 x float> %v66)
  call void asm sideeffect "", "~{memory}"()
  %v79 = getelementptr float, ptr %v6, i64 6
  %v80 = load float, ptr %v79, align 4
  %v81 = getelementptr float, ptr %v9, i64 96
  %v82 = load <16 x float>, ptr %v81, align 4
  %v83 = insertelement <16 x float> poison, float %v80, i32 0
  %v84 = shufflevector <16 x float> %v83, <16 x float> poison, <16 x i32> zeroinitializer
  %v85 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v84, <16 x float> %v82, <16 x float> %v73)
  %v86 = getelementptr float, ptr %v6, i64 13
  %v87 = load float, ptr %v86, align 4
  %v88 = insertelement <16 x float> poison, float %v87, i32 0
  %v89 = shufflevector <16 x float> %v88, <16 x float> poison, <16 x i32> zeroinitializer
  %v90 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v89, <16 x float> %v82, <16 x float> %v78)
  %v92 = trunc i64 %v91 to i32
  %v93 = insertelement <16 x i32> poison, i32 %v92, i32 0
  %v94 = shufflevector <16 x i32> %v93, <16 x i32> poison, <16 x i32> zeroinitializer
  %v95 = add <16 x i32> %v94, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v96 = icmp slt <16 x i32> %v95, splat (i32 33)
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v85, ptr align 4 %v100, <16 x i1> %v96)
  %v101 = getelementptr float, ptr %v100, i64 33
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v90, ptr align 4 %v101, <16 x i1> %v96)
  br label %latch6
latch6:
  %i2.next = add nuw nsw i64 %i2, 1
  %i2.more = icmp slt i64 %i2.next, 3
  br i1 %i2.more, label %loop4, label %after5
after5:
  br label %latch3
latch3:
  %i1.next = add nuw nsw i64 %i1, 1
  %i1.more = icmp slt i64 %i1.next, 3
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
  %v7 = mul nsw i64 %i1, 16
  %v8 = getelementptr float, ptr %argument0, i64 %v7
  %v14 = mul nsw i64 %i1, 112
  %v15 = getelementptr float, ptr %argument1, i64 %v14
  br label %loop4
loop4:
  %i2 = phi i64 [ 0, %loop1 ], [ %i2.next, %latch6 ]
  %v9 = mul nsw i64 %i2, 33
  %v10 = getelementptr float, ptr %v8, i64 %v9
  %v16 = mul nsw i64 %i2, 16
  %v17 = getelementptr float, ptr %v15, i64 %v16
  br label %loop7
loop7:
  %i3 = phi i64 [ 0, %loop4 ], [ %i3.next, %latch9 ]
  %v4 = mul nsw i64 %i1, 16
  %v5 = add nsw i64 %v4, %i3
  %v6 = icmp slt i64 %v5, 33
  %v11 = getelementptr float, ptr %v10, i64 %i3
  %v18 = getelementptr float, ptr %v17, i64 %i3
  %v12 = select i1 %v6, ptr %v11, ptr @zeros
  %v13 = load float, ptr %v12, align 4
  store float %v13, ptr %v18, align 4
  br label %latch9
latch9:
  %i3.next = add nuw nsw i64 %i3, 1
  %i3.more = icmp slt i64 %i3.next, 16
  br i1 %i3.more, label %loop7, label %after8
after8:
  br label %latch6
latch6:
  %i2.next = add nuw nsw i64 %i2, 1
  %i2.more = icmp slt i64 %i2.next, 7
  br i1 %i2.more, label %loop4, label %after5
after5:
  br label %latch3
latch3:
  %i1.next = add nuw nsw i64 %i1, 1
  %i1.more = icmp slt i64 %i1.next, 3
  br i1 %i1.more, label %loop1, label %after2
after2:
  ret void
}
