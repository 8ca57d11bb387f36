(* What each theorem assumes beyond its stated hypotheses: Coq answers "Closed under the global context", nothing. *)

From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Heads Paths Counts Sources Norms Orders Basis.

(* Heads.v *)
Print Assumptions identity_head_acts.
Print Assumptions mixed_product.
Print Assumptions head_in_three_steps.
Print Assumptions concatenation_of_two.
Print Assumptions concatenation_is_sum.
Print Assumptions concatenated_layer_is_sum_of_heads.

(* Paths.v *)
Print Assumptions path_acts_by_its_heads.
Print Assumptions stream_is_sum_over_paths.
Print Assumptions stream_is_linear.
Print Assumptions identity_head_is_the_residual.
Print Assumptions logits_are_sum_over_paths.
Print Assumptions scores_are_double_sum.
Print Assumptions scores_from_tokens.
Print Assumptions scores_in_four_families.
Print Assumptions path_rows_sum_to_one.
Print Assumptions path_is_causal.

(* Counts.v *)
Print Assumptions number_of_paths.
Print Assumptions number_of_paths_of_order.
Print Assumptions number_of_score_terms.
Print Assumptions elementary_uniform.
Print Assumptions elementary_is_coefficient.
Print Assumptions elementary_is_sum_over_sets.

(* Sources.v *)
Print Assumptions stream_with_sources.
Print Assumptions scores_with_sources.
Print Assumptions number_of_terms.
Print Assumptions value_bias_is_source.
Print Assumptions biased_layer_has_sources.
Print Assumptions bias_collapses.
Print Assumptions query_and_key_biases.

(* Norms.v *)
Print Assumptions norm_folds_into_head.
Print Assumptions centring_and_gain_fold.
Print Assumptions norms_fold.
Print Assumptions normed_stream_is_sum_over_paths.
Print Assumptions normed_logits_are_sum_over_paths.
Print Assumptions normed_scores_are_double_sum.
Print Assumptions norm_side_matters.

(* Orders.v *)
Print Assumptions term_importance_truncates.
Print Assumptions last_run_is_the_model.
Print Assumptions ablation_takes_the_terms_through.

(* Basis.v *)
Print Assumptions new_OV.
Print Assumptions new_QK.
Print Assumptions stream_in_new_basis.
Print Assumptions logit_terms_unchanged.
Print Assumptions logits_unchanged.
Print Assumptions score_terms_unchanged.
Print Assumptions scores_unchanged.
Print Assumptions OV_unchanged_inside.
Print Assumptions QK_unchanged_inside.
