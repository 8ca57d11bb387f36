(* The list of all paths, computed: a third way to it, beside the enumeration of the package and SymPy.

   A head is called by its place (layer, index), both counted from 0.  The package lists paths by order, and those of one
   order as their lists of places stand in a dictionary.  `listing` sorts the paths so, and `verify --general` compares
   it with the enumeration, for several head counts. *)

From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Heads Paths Unique.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Definition place := (nat * nat)%type.

Definition places (Hs : seq nat) : seq (seq place) :=
  [seq [seq (l, i) | i <- iota 0 (nth 0 Hs l)] | l <- iota 0 (size Hs)].

Fixpoint in_dictionary (p q : seq place) : bool :=
  match p, q with
  | [::], _ => true
  | _, [::] => false
  | (l, i) :: p', (m, j) :: q' => (l < m) || ((l == m) && ((i < j) || ((i == j) && in_dictionary p' q')))
  end.

Definition listed_before (p q : seq place) : bool := (size p < size q) || ((size p == size q) && in_dictionary p q).

Definition listing (Hs : seq nat) : seq (seq place) := sort listed_before (paths (places Hs)).

(* Every path is there, and nothing else. *)
Theorem listing_has_every_path Hs : listing Hs =i paths (places Hs).
Proof. by move=> p; rewrite mem_sort. Qed.

(* No path is there twice: a path is the set of its heads. *)
Theorem listing_has_no_path_twice Hs : uniq (listing Hs).
Proof.
rewrite sort_uniq; apply: paths_are_distinct; rewrite /places.
have in_layers s : forall r : seq nat, uniq r -> 
    uniq (flatten [seq [seq (l, i) | i <- iota 0 (nth 0 s l)] | l <- r]).
  elim=> [|l r IH] //= /andP [l_r r_uniq]; rewrite cat_uniq IH // andbT.
  rewrite map_inj_uniq ?iota_uniq => [|i j [] //]; rewrite andTb -all_predC.
  apply/allP => [[m j]] /flattenP [row /mapP [l' l'_in ->] /mapP [i _ [-> _]]] /=.
  by apply: contra l_r => /mapP [i' _ [<- _]].
exact/in_layers/iota_uniq.
Qed.

(* And it is in order. *)
Lemma dictionary_is_total : total in_dictionary.
Proof.
elim=> [|[l i] p IH] [|[m j] q] //=.
case: (ltngtP l m) => // _; case: (ltngtP i j) => // _ /=; exact: IH.
Qed.

Theorem listing_is_in_order Hs : sorted listed_before (listing Hs).
Proof.
apply: sort_sorted => p q; rewrite /listed_before.
by case: (ltngtP (size p) (size q)) => //= _; apply: dictionary_is_total.
Qed.
