# What only the exhaustive ring has of the cases that every weight format has, as the negative part of a gtest filter: in CI the
# kernels of q4_k, q8_0, mxfp4, f16 and f32 stand for all. Beside it, what takes seconds and differs little from another case.
set(not_sampled *attention_many*_windowed:*attention_gated*f32*:*far_on__windowed)
foreach(format bf16 iq nvfp4 q1 q2 q3 q4_0 q4_1 q5 q6 tq)
  string(APPEND not_sampled ":*linear_${format}*:*embed_${format}*:*/${format}*")
endforeach()
