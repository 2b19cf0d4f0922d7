declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @autotune_parallel_for(ptr, ptr, i64, i32)
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
  %v96 = mul nsw i64 %v4, 33
  %v97 = getelementptr float, ptr %argument2, i64 %v96
  br label %loop4
loop4:
  %p8 = phi ptr [ %argument1, %loop1 ], [ %p8.next, %latch6 ]
  %p98 = phi ptr [ %v97, %loop1 ], [ %p98.next, %latch6 ]
  %i2 = phi i64 [ 0, %loop1 ], [ %i2.next, %latch6 ]
  %v90 = mul nsw i64 %i2, 16
  %v7 = load float, ptr %v6, align 4
  %v9 = load <16 x float>, ptr %p8, align 4
  %v10 = insertelement <16 x float> poison, float %v7, i32 0
  %v11 = shufflevector <16 x float> %v10, <16 x float> poison, <16 x i32> zeroinitializer
  %v12 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v11, <16 x float> %v9, <16 x float> splat (float 0x0000000000000000))
  %v13 = getelementptr float, ptr %v6, i64 7
  %v14 = load float, ptr %v13, align 4
  %v15 = insertelement <16 x float> poison, float %v14, i32 0
  %v16 = shufflevector <16 x float> %v15, <16 x float> poison, <16 x i32> zeroinitializer
  %v17 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v16, <16 x float> %v9, <16 x float> splat (float 0x0000000000000000))
  call void asm sideeffect "", "~{memory}"()
  %v18 = getelementptr float, ptr %v6, i64 1
  %v19 = load float, ptr %v18, align 4
  %v20 = getelementptr float, ptr %p8, i64 16
  %v21 = load <16 x float>, ptr %v20, align 4
  %v22 = insertelement <16 x float> poison, float %v19, i32 0
  %v23 = shufflevector <16 x float> %v22, <16 x float> poison, <16 x i32> zeroinitializer
  %v24 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v23, <16 x float> %v21, <16 x float> %v12)
  %v25 = getelementptr float, ptr %v6, i64 8
  %v26 = load float, ptr %v25, align 4
  %v27 = insertelement <16 x float> poison, float %v26, i32 0
  %v28 = shufflevector <16 x float> %v27, <16 x float> poison, <16 x i32> zeroinitializer
  %v29 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v28, <16 x float> %v21, <16 x float> %v17)
  call void asm sideeffect "", "~{memory}"()
  %v30 = getelementptr float, ptr %v6, i64 2
  %v31 = load float, ptr %v30, align 4
  %v32 = getelementptr float, ptr %p8, i64 32
  %v33 = load <16 x float>, ptr %v32, align 4
  %v34 = insertelement <16 x float> poison, float %v31, i32 0
  %v35 = shufflevector <16 x float> %v34, <16 x float> poison, <16 x i32> zeroinitializer
  %v36 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v35, <16 x float> %v33, <16 x float> %v24)
  %v37 = getelementptr float, ptr %v6, i64 9
  %v38 = load float, ptr %v37, align 4
  %v39 = insertelement <16 x float> poison, float %v38, i32 0
  %v40 = shufflevector <16 x float> %v39, <16 x float> poison, <16 x i32> zeroinitializer
  %v41 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v40, <16 x float> %v33, <16 x float> %v29)
  call void asm sideeffect "", "~{memory}"()
  %v42 = getelementptr float, ptr %v6, i64 3
  %v43 = load float, ptr %v42, align 4
  %v44 = getelementptr float, ptr %p8, i64 48
  %v45 = load <16 x float>, ptr %v44, align 4
  %v46 = insertelement <16 x float> poison, float %v43, i32 0
  %v47 = shufflevector <16 x float> %v46, <16 x float> poison, <16 x i32> zeroinitializer
  %v48 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v47, <16 x float> %v45, <16 x float> %v36)
  %v49 = getelementptr float, ptr %v6, i64 10
  %v50 = load float, ptr %v49, align 4
  %v51 = insertelement <16 x float> poison, float %v50, i32 0
  %v52 = shufflevector <16 x float> %v51, <16 x float> poison, <16 x i32> zeroinitializer
  %v53 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v52, <16 x float> %v45, <16 x float> %v41)
  call void asm sideeffect "", "~{memory}"()
  %v54 = getelementptr float, ptr %v6, i64 4
  %v55 = load float, ptr %v54, align 4
  %v56 = getelementptr float, ptr %p8, i64 64
  %v57 = load <16 x float>, ptr %v56, align 4
  %v58 = insertelement <16 x float> poison, float %v55, i32 0
  %v59 = shufflevector <16 x float> %v58, <16 x float> poison, <16 x i32> zeroinitializer
  %v60 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v59, <16 x float> %v57, <16 x float> %v48)
  %v61 = getelementptr float, ptr %v6, i64 11
  %v62 = load float, ptr %v61, align 4
  %v63 = insertelement <16 x float> poison, float %v62, i32 0
  %v64 = shufflevector <16 x float> %v63, <16 x float> poison, <16 x i32> zeroinitializer
  %v65 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v64, <16 x float> %v57, <16 x float> %v53)
  call void asm sideeffect "", "~{memory}"()
  %v66 = getelementptr float, ptr %v6, i64 5
  %v67 = load float, ptr %v66, align 4
  %v68 = getelementptr float, ptr %p8, i64 80
  %v69 = load <16 x float>, ptr %v68, align 4
  %v70 = insertelement <16 x float> poison, float %v67, i32 0
  %v71 = shufflevector <16 x float> %v70, <16 x float> poison, <16 x i32> zeroinitializer
  %v72 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v71, <16 x float> %v69, <16 x float> %v60)
  %v73 = getelementptr float, ptr %v6, i64 12
  %v74 = load float, ptr %v73, align 4
  %v75 = insertelement <16 x float> poison, float %v74, i32 0
  %v76 = shufflevector <16 x float> %v75, <16 x float> poison, <16 x i32> zeroinitializer
  %v77 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v76, <16 x float> %v69, <16 x float> %v65)
  call void asm sideeffect "", "~{memory}"()
  %v78 = getelementptr float, ptr %v6, i64 6
  %v79 = load float, ptr %v78, align 4
  %v80 = getelementptr float, ptr %p8, i64 96
  %v81 = load <16 x float>, ptr %v80, align 4
  %v82 = insertelement <16 x float> poison, float %v79, i32 0
  %v83 = shufflevector <16 x float> %v82, <16 x float> poison, <16 x i32> zeroinitializer
  %v84 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v83, <16 x float> %v81, <16 x float> %v72)
  %v85 = getelementptr float, ptr %v6, i64 13
  %v86 = load float, ptr %v85, align 4
  %v87 = insertelement <16 x float> poison, float %v86, i32 0
  %v88 = shufflevector <16 x float> %v87, <16 x float> poison, <16 x i32> zeroinitializer
  %v89 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v88, <16 x float> %v81, <16 x float> %v77)
  %v91 = trunc i64 %v90 to i32
  %v92 = insertelement <16 x i32> poison, i32 %v91, i32 0
  %v93 = shufflevector <16 x i32> %v92, <16 x i32> poison, <16 x i32> zeroinitializer
  %v94 = add <16 x i32> %v93, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v95 = icmp slt <16 x i32> %v94, splat (i32 33)
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v84, ptr align 4 %p98, <16 x i1> %v95)
  %v99 = getelementptr float, ptr %p98, i64 33
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v89, ptr align 4 %v99, <16 x i1> %v95)
  br label %latch6
latch6:
  %p8.next = getelementptr float, ptr %p8, i64 112
  %p98.next = getelementptr float, ptr %p98, i64 16
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
declare void @autotune_parallel_for(ptr, ptr, i64, i32)

define void @pack0(ptr %arguments, i32 %threads, ptr %workspace) nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "target-cpu"="skylake-avx512" {
entry:
  %argument.at0 = getelementptr ptr, ptr %arguments, i64 0
  %argument0 = load ptr, ptr %argument.at0
  %argument.at1 = getelementptr ptr, ptr %arguments, i64 1
  %argument1 = load ptr, ptr %argument.at1
  br label %loop1
loop1:
  %p7 = phi ptr [ %argument0, %entry ], [ %p7.next, %latch3 ]
  %p12 = phi ptr [ %argument1, %entry ], [ %p12.next, %latch3 ]
  %i1 = phi i64 [ 0, %entry ], [ %i1.next, %latch3 ]
  br label %loop4
loop4:
  %p8 = phi ptr [ %p7, %loop1 ], [ %p8.next, %latch6 ]
  %p13 = phi ptr [ %p12, %loop1 ], [ %p13.next, %latch6 ]
  %i2 = phi i64 [ 0, %loop1 ], [ %i2.next, %latch6 ]
  br label %loop7
loop7:
  %p9 = phi ptr [ %p8, %loop4 ], [ %p9.next, %latch9 ]
  %p14 = phi ptr [ %p13, %loop4 ], [ %p14.next, %latch9 ]
  %i3 = phi i64 [ 0, %loop4 ], [ %i3.next, %latch9 ]
  %v4 = mul nsw i64 %i1, 16
  %v5 = add nsw i64 %v4, %i3
  %v6 = icmp slt i64 %v5, 33
  %v10 = select i1 %v6, ptr %p9, ptr @zeros
  %v11 = load float, ptr %v10, align 4
  store float %v11, ptr %p14, align 4
  br label %latch9
latch9:
  %p9.next = getelementptr float, ptr %p9, i64 1
  %p14.next = getelementptr float, ptr %p14, i64 1
  %i3.next = add nuw nsw i64 %i3, 1
  %i3.more = icmp slt i64 %i3.next, 16
  br i1 %i3.more, label %loop7, label %after8
after8:
  br label %latch6
latch6:
  %p8.next = getelementptr float, ptr %p8, i64 33
  %p13.next = getelementptr float, ptr %p13, i64 16
  %i2.next = add nuw nsw i64 %i2, 1
  %i2.more = icmp slt i64 %i2.next, 7
  br i1 %i2.more, label %loop4, label %after5
after5:
  br label %latch3
latch3:
  %p7.next = getelementptr float, ptr %p7, i64 16
  %p12.next = getelementptr float, ptr %p12, i64 112
  %i1.next = add nuw nsw i64 %i1, 1
  %i1.more = icmp slt i64 %i1.next, 3
  br i1 %i1.more, label %loop1, label %after2
after2:
  ret void
}
